"""Settings, and where the engine's folder is."""
