"""Draws charts: layout, pictures, and exports for other tools. It knows charts and nothing that runs them."""
