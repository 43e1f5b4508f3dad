"""Examples to copy: Python kernels, recurrent PPO, a central critic, convolutions, self-play."""
