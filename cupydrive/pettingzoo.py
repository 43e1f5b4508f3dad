"""PettingZoo's side of cupydrive."""

from cupydrive.adapters.pettingzoo import ParallelEnv

__all__ = ["ParallelEnv"]
