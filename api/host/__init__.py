"""What belongs to one host: the operator socket, systemd, and the running of an engine with its server."""
