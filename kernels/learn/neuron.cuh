// neuron.cuh -- what a network does with single numbers: observations as it sees them, and its activation.
#pragma once
#include "drive/math.cuh"

namespace policy {

template <bool RELU> DEVICE float activation(float x) {
  if constexpr (RELU) return x < 0.0f ? 0.0f : x;  // keeps NaN; equal(swap <): the result is 0 either way
  else return math::tanh(x);
}

// One observation as the network sees it: minus `center`, times `scale`, within 10; both null: as it is.
DEVICE float seen(float x, const float* center, const float* scale, int d) {
  return center == nullptr ? x : math::clamp((x - center[d]) * scale[d], -10.0f, 10.0f);
}

}  // namespace policy
