"""Adapter to Lightning."""

from cupydrive.adapters.lightning import RLModule

__all__ = ["RLModule"]
