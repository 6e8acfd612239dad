"""How a container is run: one protocol, and what confines every container whatever runs it."""
