"""The command line and the notebook magic."""
