"""The gallery: train and render every environment, and write its page."""
