// functions.cuh -- Functions of networks and losses: those of math.cuh, or with APPROXIMATE on a GPU the hardware's approximations,
// which take a tenth of the instructions and have a relative error of about 2^-21.
#pragma once
#include "drive/math.cuh"

#ifndef APPROXIMATE
#define APPROXIMATE 0
#endif

namespace policy {

#if APPROXIMATE && defined(__CUDACC__)
DEVICE float exponential(float x) { return __expf(x); }
DEVICE float logarithm(float x) { return __logf(x); }
DEVICE float quotient(float x, float y) { return __fdividef(x, y); }
DEVICE float square_root(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float hyperbolic_tangent(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
DEVICE float exponential(float x) { return math::exp(x); }
DEVICE float logarithm(float x) { return math::log(x); }
DEVICE float quotient(float x, float y) { return x / y; }
DEVICE float square_root(float x) { return math::sqrt(x); }
DEVICE float hyperbolic_tangent(float x) { return math::tanh(x); }
#endif

DEVICE float sigmoid(float x) { return math::fma(0.5f, hyperbolic_tangent(0.5f * x), 0.5f); }

template <bool RELU> DEVICE float activation(float x) {
  if constexpr (RELU) return x < 0.0f ? 0.0f : x;  // keeps NaN. mutant(swap <): the result is 0 either way
  else return hyperbolic_tangent(x);
}

// Derivative of the activation, given its result `y`.
template <bool RELU> DEVICE float activation_gradient(float y) {
  if constexpr (RELU) return y > 0.0f ? 1.0f : 0.0f;
  else return APPROXIMATE ? math::fma(-y, y, 1.0f) : 1.0f - y * y;
}

// Entry d of an observation as the network sees it: normalized and clipped to [-10, 10], or `x` if `center` is null.
DEVICE float normalize_entry(float x, const float* center, const float* scale, int d) {
  return center == nullptr ? x : math::clamp((x - center[d]) * scale[d], -10.0f, 10.0f);
}

}  // namespace policy
