"""The simulator: ``make``, ``VectorEnv``, the batch of buffers that kernels fill, snapshots,
layouts by measurement.

Imports executors and below; neither training nor rendering.
"""
