"""Runs: their configuration, the training loop, run folders, explanations of failures, and a
check that policies learn from the actions that they took.
"""
