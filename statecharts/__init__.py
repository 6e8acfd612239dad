"""Charts of pairing code, session and instance, and what runs and draws them. Pure: no clock, file or socket."""
