// normals.cuh -- Independent standard normal numbers from 32-bit random integers.
//
// Source: Box & Muller 1958, "A note on the generation of random normal deviates".
#pragma once
#include "drive/random.cuh"
#include "drive/math.cuh"

struct Normals {
  float x, y, z, w;
  DEVICE float pick(int i) const { return i & 2 ? (i & 1 ? w : z) : (i & 1 ? y : x); }  // i modulo 4
};

// Compute two independent standard normal numbers.
DEVICE void box_muller(u32 a, u32 b, float* x, float* y) {
  const float radius = math::sqrt(-2.0f * math::log(1.0f - Random::unit(a)));  // of a number in (0, 1]
  float sine, cosine;
  math::sincos(math::TWO_PI * Random::unit(b), &sine, &cosine);
  *x = radius * cosine;
  *y = radius * sine;
}

DEVICE Normals normals(const Random& random, int agent, int draw) {
  const auto bits = random.bits(agent, draw);
  Normals n;
  box_muller(bits.x, bits.y, &n.x, &n.y);
  box_muller(bits.z, bits.w, &n.z, &n.w);
  return n;
}
