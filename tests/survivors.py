"""Mutants of the shared kernels that no test can see, each with the reason: (file, the line before, the line after) -> why."""

EQUIVALENT = {}
