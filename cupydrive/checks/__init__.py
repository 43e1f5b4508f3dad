"""The consistency checker: a kernel against its NumPy reference, CPU against GPU, teams against one
thread, branches.
"""
