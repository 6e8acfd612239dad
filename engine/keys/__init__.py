"""Keys in files: authorized_keys, the engine's own keys, their rotation, and which keys are too weak.

It knows nothing of sessions, and of no engine but this one.
"""
