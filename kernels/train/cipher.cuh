// cipher.cuh -- A random permutation of [0, n), computed element by element.
//
// Source: Black & Rogaway 2002, "Ciphers with arbitrary finite domains". A Feistel network permutes [0, 4^k), and an element
// outside of [0, n) is permuted again until it is inside. The round keys come from Philox.
#pragma once
#include "drive/random.cuh"

constexpr int ROUNDS = 8;

// Mix 32 bits, so that each output bit depends on all input bits (Wellons' lowbias32).
DEVICE u32 mix(u32 x) {
  x ^= x >> 16; x *= 0x7feb352du;
  x ^= x >> 15; x *= 0x846ca68bu;
  return x ^ x >> 16;
}

struct Cipher {
  u32 size;        // n, from 1 to 2^30
  int half;        // bits of one half
  u32 key[ROUNDS];

  // The keys are the words of two draws for `agent`, from `first_draw` on.
  DEVICE Cipher(int n, const Random& random, u32 agent, u32 first_draw) : size((u32)n), half(1) {
    // mutant(swap < 1): unreachable for all sizes allowed. mutant(constant 1): 15 bits suffice for 4^15
    while (half < 15 && (1 << 2 * half) < n) half += 1;
    for (int k = 0; k < ROUNDS; k += 4) {
      const auto bits = random.bits(agent, first_draw + (u32)k / 4);
      key[k] = bits.x; key[k + 1] = bits.y; key[k + 2] = bits.z; key[k + 3] = bits.w;
    }
  }

  // Return the place of element x of [0, 4^half).
  DEVICE u32 permuted(const u32 x) const {
    const u32 low = (1u << half) - 1u;
    u32 left = x >> half, right = x & low;
    for (int k = 0; k < ROUNDS; ++k) {
      const u32 next = left ^ (mix(right ^ key[k]) & low);
      left = right;
      right = next;
    }
    return left << half | right;
  }
  // Return the place of element i, in [0, n). x: its place in [0, 4^half).
  DEVICE int within(u32 x) const {
    while (x >= size) x = permuted(x);
    return (int)x;
  }
  DEVICE int of(int i) const {
    u32 x = (u32)i;
    do x = permuted(x);
    while (x >= size);
    return (int)x;
  }
};
