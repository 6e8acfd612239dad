"""Several engines over one Redis."""
