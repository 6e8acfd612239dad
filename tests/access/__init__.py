"""Challenges, signers, tokens, limits, the license."""
