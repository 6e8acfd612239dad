"""Sockets, connections, deadlines, the parsers."""
