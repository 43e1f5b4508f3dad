// functions.cuh -- functions and quotients of the losses: those of math.cuh, or (APPROXIMATE, on a GPU) the hardware's, which
// take a tenth of the instructions and are off by about 2^-21 of the result.
#pragma once
#include "drive/math.cuh"

#ifndef APPROXIMATE
#define APPROXIMATE 0
#endif

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
