"""Adapter to Stable-Baselines3."""

from cupydrive.adapters.stable_baselines3 import VecEnv

__all__ = ["VecEnv"]
