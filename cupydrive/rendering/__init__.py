"""Episodes as videos, and as a viewer in a notebook."""
