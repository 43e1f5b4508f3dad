"""Examples to copy: Python kernels, recurrent PPO, a centralized critic, convolutions,
self-play.
"""
