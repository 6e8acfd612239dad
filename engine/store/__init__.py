"""What survives a restart: one protocol, several media."""
