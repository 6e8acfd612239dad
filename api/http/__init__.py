"""The HTTP doors: one table of them, mounted twice, behind one layer of manners."""
