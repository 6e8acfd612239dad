"""Records on disk, those who subscribe to them, and the log."""
