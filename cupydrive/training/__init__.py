"""Runs: what they are made of, the loop that trains them, their folders, why one failed, and
whether policies learn what they did.
"""
