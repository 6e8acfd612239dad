"""What the handbook shows whole: programs that its tests run."""
