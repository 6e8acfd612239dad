"""Who may come in: challenges, signatures, tokens, limits on tries, and the license. It keeps no session."""
