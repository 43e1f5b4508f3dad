"""Episodes as videos, as a viewer in a notebook, and as games that a person plays in a notebook or
a terminal.
"""
