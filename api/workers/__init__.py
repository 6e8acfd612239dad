"""`--workers`: door processes that share the engine's port and answer what they can; the one engine stays the judge."""
