// bfloat.cuh -- numbers as bfloat16, two in one word, as matrix units take them, and the weights that they are made of.
#pragma once
#include "drive/halves.cuh"
#include "drive/math.cuh"

#ifdef __CUDACC__
// Two numbers as bfloat16 in one word, the first in its lower half.
DEVICE u32 pair(float first, float second) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}
#else
DEVICE u32 pair(float first, float second) {
  bf16 a, b;
  a = first;
  b = second;
  return (u32)a.bits | (u32)b.bits << 16;
}
#endif
DEVICE float first_of(u32 word) { return math::from_bits(word << 16); }
DEVICE float second_of(u32 word) { return math::from_bits(word & 0xffff0000u); }  // equal(constant): below the rounding to bfloat

// Entry (n, k) of a layer's weights (OUT, IN); 0 beside them.
template <class Layer> DEVICE float weight_at(const float* weights, const int n, const int k) {
  return n < Layer::OUT && k < Layer::IN ? weights[n * Layer::IN + k] : 0.0f;
}
