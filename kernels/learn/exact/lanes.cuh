// lanes.cuh -- N floats in the registers of one thread: scalars, or vectors of a CPU, which are explicit because compilers
// vectorize such loops unreliably. Each lane computes bit for bit as a float would.
#pragma once
#include "drive/math.cuh"

// ALONE: a team is one CPU thread.
#if TEAM == 1 && !defined(__CUDACC__)
#define ALONE 1
#else
#define ALONE 0
#endif

constexpr int PAD = 16;  // rows of matrices are padded to a multiple of it, so that tiles have no ragged edge

constexpr int padded(int n) { return (n + PAD - 1) / PAD * PAD; }

// Store two numbers at once, aligned to 8 bytes.
DEVICE void store_two(float* to, const float first, const float second) {
#ifdef __CUDACC__
  *(float2*)to = make_float2(first, second);
#else
  to[0] = first;
  to[1] = second;
#endif
}

// Four numbers that are loaded and stored at once. In memory they are aligned to 16 bytes.
struct Four {
  float of[4];
  DEVICE void add(const Four& other) { UNROLL for (int j = 0; j < 4; ++j) of[j] += other.of[j]; }
#ifdef __CUDACC__
  DEVICE void load(const float* from) {
    const float4 four = *(const float4*)from;
    of[0] = four.x; of[1] = four.y; of[2] = four.z; of[3] = four.w;
  }
  DEVICE void store(float* to) const { *(float4*)to = make_float4(of[0], of[1], of[2], of[3]); }
#else
  DEVICE void load(const float* from) { for (int j = 0; j < 4; ++j) of[j] = from[j]; }
  DEVICE void store(float* to) const { for (int j = 0; j < 4; ++j) to[j] = of[j]; }
#endif
};

#if defined(__CUDACC__) || defined(COUNT_OPERATIONS)
template <int N> struct Lanes {
  float of[N];
  DEVICE void load(const float* from) { UNROLL for (int j = 0; j < N; ++j) of[j] = from[j]; }
  DEVICE void store(float* to) const { UNROLL for (int j = 0; j < N; ++j) to[j] = of[j]; }
  DEVICE void add(const Lanes& other) { UNROLL for (int j = 0; j < N; ++j) of[j] += other.of[j]; }
  // Add factor * other, rounded once.
  DEVICE void add_product(float factor, const Lanes& other) {
    UNROLL for (int j = 0; j < N; ++j) of[j] = math::fma(factor, other.of[j], of[j]);
  }
};
#else
#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
// Return a * b + c, rounded once.
DEVICE floats fused(floats a, floats b, floats c) {
#if defined(__AVX512F__) && __has_builtin(__builtin_ia32_vfmaddps512_mask)
  return __builtin_ia32_vfmaddps512_mask(a, b, c, (short)-1, 4);  // all lanes, in the current rounding mode
#elif defined(__FMA__) && !defined(__AVX512F__) && __has_builtin(__builtin_ia32_vfmaddps256)
  return __builtin_ia32_vfmaddps256(a, b, c);
#elif __has_builtin(__builtin_elementwise_fma)
  return __builtin_elementwise_fma(a, b, c);
#else
  for (int j = 0; j < SIDE_FLOATS; ++j) c[j] = __builtin_fmaf(a[j], b[j], c[j]);
  return c;
#endif
}
template <int N> struct Lanes {
  static_assert(N % SIDE_FLOATS == 0, "whole vectors");
  static constexpr int VECTORS = N / SIDE_FLOATS;
  typedef floats Anywhere __attribute__((aligned(4), may_alias));  // a vector in memory, aligned as a float is
  floats of[VECTORS];
  DEVICE void load(const float* from) { for (int v = 0; v < VECTORS; ++v) of[v] = *(const Anywhere*)(from + v * SIDE_FLOATS); }
  DEVICE void store(float* to) const { for (int v = 0; v < VECTORS; ++v) *(Anywhere*)(to + v * SIDE_FLOATS) = of[v]; }
  DEVICE void add(const Lanes& other) { for (int v = 0; v < VECTORS; ++v) of[v] += other.of[v]; }
  DEVICE void add_product(float factor, const Lanes& other) {
    const floats factors = factor - floats{};  // broadcast to every lane: x - 0 is x
    for (int v = 0; v < VECTORS; ++v) of[v] = fused(factors, other.of[v], of[v]);
  }
};
#endif
