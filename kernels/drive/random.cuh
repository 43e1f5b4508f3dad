// random.cuh -- Philox4x32-10, a counter-based generator: four words as a pure function of a key and a counter.
//
// Source: Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
// No state is stored, so any draw can be repeated anywhere. cupydrive/random.py is the same function in NumPy.
//
//   key      the 64-bit seed, low word first
//   counter  environment (global id) | episode | step | draw << 20 | purpose << 16 | agent
//            agent in [0, 65536), purpose in [0, 16), draw in [0, 4096)
//
//   purpose    step word         episode word
//   RESET      0                 the episode that begins
//   DYNAMICS   elapsed, from 1   the episode
//   ACTION     time / 4          0    (time: steps since reset(seed). Word time % 4 is used, so that one call in
//                                     four steps serves every environment at once, whatever its episode)
//   POLICY     elapsed, from 0   the episode    (policy noise: the training kernels)
//   SHUFFLE    permutation       iteration, high word (draws: element). Its low word takes the place of the environment
//   WEIGHTS    layer             0    (element / 4 takes the place of the environment, the agent is the policy's first)
//   OPPONENT   0                 the episode that begins    (the agent is the policy's first)
#pragma once
#include "drive/faults.cuh"

// Time of an environment: number of the episode that comes next, steps since this one began, steps since reset(seed).
struct Clock { u32 episode; int elapsed; u32 time; };

enum Purpose : u32 { RESET = 0, DYNAMICS = 1, ACTION = 2, POLICY = 3, SHUFFLE = 4, WEIGHTS = 5, OPPONENT = 6 };

DEVICE u32 high_product(u32 a, u32 b) {
#ifdef __CUDACC__
  return __umulhi(a, b);
#else
  return (u32)(((u64)a * b) >> 32);
#endif
}

struct Random {
  u64 seed;
  u32 env, episode, step, purpose;

  struct Bits {
    u32 x, y, z, w;
    DEVICE u32 word(u32 i) const { return i & 2u ? (i & 1u ? w : z) : (i & 1u ? y : x); }  // i modulo 4
  };
  struct Uniform4 { float x, y, z, w; };

  // Four independent 32-bit words.
  DEVICE Bits bits(u32 agent, u32 draw = 0 CALLER) const {
    CHECK_INDEX((int)agent, 1 << 16, "agent (random numbers)"); CHECK_INDEX((int)draw, 1 << 12, "draw (random numbers)");
    u32 c0 = env, c1 = episode, c2 = step, c3 = draw << 20 | purpose << 16 | agent;
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    UNROLL for (int round = 0; round < 10; ++round) {
      const u32 high0 = high_product(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
      const u32 high2 = high_product(0xCD9E8D57u, c2), low2 = 0xCD9E8D57u * c2;
      c0 = high2 ^ c1 ^ k0; c1 = low2; c2 = high0 ^ c3 ^ k1; c3 = low0;
      k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    return {c0, c1, c2, c3};
  }

  // Four independent floats in [0, 1): multiples of 2^-24.
  DEVICE Uniform4 uniform4(u32 agent, u32 draw = 0 CALLER) const {
    const Bits b = bits(agent, draw SAME_CALLER);
    return {unit(b.x), unit(b.y), unit(b.z), unit(b.w)};
  }

  static DEVICE float unit(u32 word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }
  // An integer in [0, n). Each value has probability 1/n to within 2^-32.
  static DEVICE int below(u32 word, int n) { return (int)high_product(word, (u32)n); }

  // Words and numbers of choices are integers. A float in [0, 1), passed as the word, would become 0.
  template <class W> static IfFractions<W> unit(W) = delete;
  template <class W, class N> static IfFractions<W, N> below(W, N) = delete;
};
