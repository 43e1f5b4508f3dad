"""Training of runs and populations, sweeps over settings, and tournaments between policies."""
