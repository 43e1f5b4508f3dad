"""Mutants of the learner's kernels for matrix units that no test can see: part of survivors.py."""

BELOW_ROUNDING = "the last bit of a float changes what rounding to a bfloat allows for by less than a hundredth"
ZERO = "either way a zero is what leaves"
LAYERS, BFLOAT = "learn/tensor_layers.cuh", "learn/bfloat.cuh"
ACTIVATE = "if constexpr (RELU) return x < 0.0f ? 0.0f : x;  // keeps NaN"
SECOND = "DEVICE float second_of(u32 word) { return math::from_bits(word & 0xffff0000u); }"
BY_MATRIX_UNITS = {
    (LAYERS, ACTIVATE, ACTIVATE.replace("<", "<=")): ZERO,
    (BFLOAT, SECOND, SECOND.replace("0xffff0000u", "(0xffff0000u + 1)")): BELOW_ROUNDING,
}
