"""Stable-Baselines3's side of cupydrive."""

from cupydrive.adapters.stable_baselines3 import VecEnv

__all__ = ["VecEnv"]
