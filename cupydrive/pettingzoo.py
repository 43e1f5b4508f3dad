"""Adapter to PettingZoo."""

from cupydrive.adapters.pettingzoo import ParallelEnv

__all__ = ["ParallelEnv"]
