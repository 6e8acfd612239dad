"""Records on the disk and their subscribers, the log, and the metrics. It never changes what it records."""
