"""PPO, A2C and PQN with the forward passes, gradients and optimizer steps of ``kernels/learn``."""
