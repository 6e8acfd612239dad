"""The security cases, against real engine processes."""
