"""What every request meets: hosts, bodies, the table of endpoints and its description."""
