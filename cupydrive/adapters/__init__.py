"""The environments as other libraries know them: Gymnasium, PettingZoo, Stable-Baselines3.

Imported under their short names, such as ``cupydrive.gymnasium``, since each needs its library.
"""
