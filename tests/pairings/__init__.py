"""The pairing service: codes, claims, decisions."""
