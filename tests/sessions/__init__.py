"""The session service, from a sign-in to every end."""
