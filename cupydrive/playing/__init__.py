"""Policies, players, rollouts, evaluations and recorded episodes.

This package uses the simulator, and does not depend on training.
"""
