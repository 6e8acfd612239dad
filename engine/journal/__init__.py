"""Records on the disk, those who subscribe to them, the log and the measurements. It never changes what it records."""
