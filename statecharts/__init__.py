"""The charts of pairing code, session and instance, their interpreter and their pictures. No clock, file or socket."""
