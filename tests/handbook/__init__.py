"""README and handbook: every command runs, every claim is held."""
