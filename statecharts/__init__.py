"""Charts of the pairing code, the session and the instance, and what runs and draws them. Pure: no clock, file or socket."""
