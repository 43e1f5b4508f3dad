"""PettingZoo's side of cupydrive."""

from cupydrive.adapters.pettingzoo import ParallelEnv, parallel_env

__all__ = ["ParallelEnv", "parallel_env"]
