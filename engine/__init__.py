"""The engine: trust, sessions, pairings and instances, run by events on charts."""
