"""Worker processes beside the engine, and what they keep of its responses."""
