"""Code generation: structs from a description, translation units, and compiler diagnostics.

This package imports descriptions of environments and does not depend on executors.
"""
