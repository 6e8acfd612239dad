"""The doors: HTTP, operator socket, console, command line, Python client."""
