"""Gymnasium's side of cupydrive; importing this registers every environment of one agent there."""

from cupydrive.adapters.gymnasium import Env, VectorEnv, make_vec, register

__all__ = ["Env", "VectorEnv", "make_vec", "register"]
