"""The session service: sign-in by key, renewal, logout, revocation. It knows nothing of HTTP and of pairings."""
