"""PPO and A2C with the forward passes, gradients and optimizer steps of ``kernels/learn``."""
