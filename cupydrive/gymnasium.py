"""Adapter to Gymnasium. The import registers every single-agent environment in Gymnasium."""

from cupydrive.adapters.gymnasium import Env, VectorEnv, register

__all__ = ["Env", "VectorEnv", "register"]
