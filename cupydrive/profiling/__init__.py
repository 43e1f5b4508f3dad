"""Profiles of kernels on this device, and tuning of layouts and numbers of environments."""
