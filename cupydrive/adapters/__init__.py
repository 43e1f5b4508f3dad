"""The environments as other libraries know them, Gymnasium, PettingZoo and Stable-Baselines3, and a
run as Lightning does.

Imported under their short names, such as ``cupydrive.gymnasium``, since each needs its library.
"""
