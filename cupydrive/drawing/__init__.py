"""Pictures of states: lines and discs on a canvas, frames of several copies."""
