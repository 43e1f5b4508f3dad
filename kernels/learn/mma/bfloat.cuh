// bfloat.cuh -- Pairs of bfloat16 in one 32-bit word, as tensor cores read them, and weights packed into such pairs.
#pragma once
#include "drive/halves.cuh"
#include "drive/math.cuh"

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
// Pack two floats into one word as bfloat16, the first in the lower half.
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
DEVICE float second_of(u32 word) { return math::from_bits(word & 0xffff0000u); }  // mutant(constant): below the rounding to bfloat
DEVICE float rounded(const float x) { return first_of(pair(x, 0.0f)); }  // to bfloat16

// The lowest two bits as numbers 0 and 1, by integer arithmetic only.
DEVICE u32 pair_of_bits(const u32 bits) { return (bits & 1u) * 0x3f80u | (bits >> 1 & 1u) * 0x3f800000u; }

// Entry (n, k) of a layer's weights (OUT, IN), or 0 outside of them.
template <class Layer> DEVICE float weight_at(const float* weights, const int n, const int k) {
  return n < Layer::OUT && k < Layer::IN ? weights[n * Layer::IN + k] : 0.0f;
}

// Entries (n, k) and (n, k + 1) as a pair, for even k.
template <class Layer> DEVICE u32 pair_at(const float* weights, const int n, const int k) {
  if constexpr (Layer::IN % 2 == 0) {  // mutant(constant): the same pair by two loads
    struct alignas(8) MAY_ALIAS Both { float first, second; };
    Both both{0.0f, 0.0f};
    if (n < Layer::OUT && k < Layer::IN) both = *(const Both*)(weights + n * Layer::IN + k);
    return pair(both.first, both.second);
  } else {
    return pair(weight_at<Layer>(weights, n, k), weight_at<Layer>(weights, n, k + 1));
  }
}

// Copy a layer's weights (OUT, IN) and biases (OUT), padded with zeros, to shared memory by THREADS threads. A thread prefetches
// its first AT_ONCE pairs into registers, so that the loads of several layers overlap.
template <class Layer, int THREADS, int IN_PAD = Layer::IN_PAD, int OUT_PAD = Layer::OUT_PAD, int BIASES = OUT_PAD, int MOST = 8>
struct LayerLoad {
  static constexpr int ACROSS = IN_PAD / 2, PAIRS = OUT_PAD * ACROSS, TURNS = (PAIRS + THREADS - 1) / THREADS;
  static constexpr int AT_ONCE = TURNS < MOST ? TURNS : MOST, OWN_BIASES = (BIASES + THREADS - 1) / THREADS;
  const float* weights;
  int thread;
  u32 pairs[AT_ONCE];
  float bias[OWN_BIASES];

  DEVICE LayerLoad(const float* weights, const float* biases, const int thread) : weights(weights), thread(thread) {
    load(0);
    UNROLL for (int j = 0; j < OWN_BIASES; ++j) {
      const int n = thread + j * THREADS;
      bias[j] = n < Layer::OUT ? biases[n] : 0.0f;
    }
  }
  DEVICE void load(const int turn) {
    UNROLL for (int j = 0; j < AT_ONCE; ++j) {
      const int i = thread + (turn + j) * THREADS, n = i / ACROSS, k = 2 * (i % ACROSS);
      pairs[j] = pair_at<Layer>(weights, n, k);
    }
  }
  // matrix: (OUT_PAD, IN_PAD).
  template <class Matrix> DEVICE void store(const Matrix matrix, float* shared_biases) {
    NO_UNROLL for (int turn = 0; turn < TURNS; turn += AT_ONCE) {
      if (turn > 0) load(turn);  // mutant(dropped condition, swap >): more work, same result
      UNROLL for (int j = 0; j < AT_ONCE; ++j) {
        const int i = thread + (turn + j) * THREADS;
        if (i < PAIRS) matrix.two(i / ACROSS, 2 * (i % ACROSS)) = pairs[j];
      }
    }
    UNROLL for (int j = 0; j < OWN_BIASES; ++j) {
      const int n = thread + j * THREADS;
      if (n < BIASES) shared_biases[n] = bias[j];
    }
  }
};
