"""Adapters to Gymnasium, PettingZoo, Stable-Baselines3 and Lightning.

Import each by its short name, such as ``cupydrive.gymnasium``. It needs its library.
"""
