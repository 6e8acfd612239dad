"""The charts as tables, what runs them, and how they are drawn."""
