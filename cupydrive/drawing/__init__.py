"""Pictures of states, charts on a canvas, frames of episodes, and learning curves."""
