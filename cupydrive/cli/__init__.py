"""The command line and the magic of notebooks: what a person types."""
