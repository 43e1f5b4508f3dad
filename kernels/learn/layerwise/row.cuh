// row.cuh -- Numbers of rows that kernels pass to each other: float32, or bfloat16 (HALF) for products on tensor cores.
// Generated: HALF (0 or 1).
#pragma once
#include "generated/spaces.cuh"
#define APPROXIMATE HALF
#include "learn/functions.cuh"
#include "drive/halves.cuh"

DEVICE float number(const float x) { return x; }
DEVICE float number(const bf16 x) { return math::from_bits((u32)x.bits << 16); }
DEVICE void put(float& to, const float x) { to = x; }
DEVICE void put(bf16& to, const float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  to = x;
#endif
}

typedef Choose<HALF, bf16, float>::type Entry;
