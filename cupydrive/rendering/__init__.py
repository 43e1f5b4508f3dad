"""Videos of episodes, a viewer for notebooks, and interactive play in a notebook or a terminal."""
