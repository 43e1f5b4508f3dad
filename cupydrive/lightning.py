"""Lightning's side of cupydrive."""

from cupydrive.adapters.lightning import RLModule

__all__ = ["RLModule"]
