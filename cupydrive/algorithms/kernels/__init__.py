"""PPO and A2C whose forward passes, gradients and optimiser steps are the kernels of
``kernels/learn``.
"""
