"""The console, in real browsers."""
