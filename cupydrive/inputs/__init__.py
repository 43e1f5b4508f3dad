"""Validation of external input: arguments, descriptions of environments, and data files.

This package imports only ``errors``.
"""
