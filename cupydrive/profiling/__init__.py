"""What a kernel costs on this device and what limits it; the fastest layout of threads and number
of environments.
"""
