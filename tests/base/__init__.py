"""What everything stands on: files, locks, durations, permissions."""
