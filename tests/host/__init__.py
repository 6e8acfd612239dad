"""What belongs to one host: addresses, TLS, systemd, proxies, the start."""
