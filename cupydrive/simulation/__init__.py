"""The simulator: ``make``, ``VectorEnv``, buffers of kernels, snapshots and layouts.

It uses executors and lower packages, and depends neither on training nor on rendering.
"""
