"""Gymnasium's side of cupydrive; importing this registers every environment of one agent there."""

from cupydrive.adapters.gymnasium import Env, VectorEnv, register

__all__ = ["Env", "VectorEnv", "register"]
