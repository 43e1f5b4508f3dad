"""Examples to copy: environments whose kernels are Python, and self-play."""
