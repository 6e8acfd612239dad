"""How the engine is reached: HTTP, operator socket, console, command line, Python client."""
