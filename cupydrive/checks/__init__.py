"""The consistency checker, which compares kernels with NumPy references, devices and team sizes."""
