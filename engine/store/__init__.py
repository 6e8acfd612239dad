"""What survives a restart: one protocol, kept in memory, in SQLite, or in a fleet's Redis. It knows no chart."""
