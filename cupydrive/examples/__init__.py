"""Examples of environments whose kernels are Python; copy one to begin your own."""
