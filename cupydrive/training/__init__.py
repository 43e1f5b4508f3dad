"""Runs: what they are made of, the loop that trains them, their folders, and why one failed."""
