"""Every setting once, and where its value comes from. It knows nothing of what a setting is used for."""
