"""What survives a restart: every medium, damage, full disks, backups."""
