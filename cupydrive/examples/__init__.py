"""Examples to copy: kernels in Python, recurrent PPO, convolutions, and self-play."""
