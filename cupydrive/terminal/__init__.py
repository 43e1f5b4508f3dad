"""What is shown while something takes long: progress lines and learning curves, in a terminal and in a notebook."""
