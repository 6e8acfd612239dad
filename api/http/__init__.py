"""HTTP without a server: requests, the gateway, the one table of endpoints, problems, and the description of it all."""
