// norm.cuh -- Layer normalization of a row by some lanes of a warp, for networks on tensor cores.
//
// Source: Ba et al. 2016, "Layer normalization". A quad of lanes has the pairs of columns 4 j + t in its lane t, as accumulator
// fragments do (play/tensor.cuh). Pairs j, j + 4, ... form a chain of sums. Sixteen lanes have a chain each, with the same bits. A
// thread of a CPU has a whole row.
#pragma once
#include "drive/math.cuh"

constexpr float NORM_EPSILON = 1e-5f;
constexpr int ROW_CHAINS = 4;

#ifdef __CUDACC__
constexpr int QUAD = 4, ROW_LANES = QUAD * ROW_CHAINS;
#else
constexpr int QUAD = 1, ROW_LANES = 1;
#endif

// Columns of a row with WIDTH numbers, padded to PADDED, in one of LANES lanes. All lanes of a warp call the functions together.
template <int WIDTH, int PADDED, int LANES> struct NormRow {
  // mutant(swap /): a CPU's lane has all pairs
  static constexpr int SPLIT = LANES / QUAD, PAIRS = PADDED / 2 / QUAD, OWN = (PAIRS + SPLIT - 1) / SPLIT;
  float of[OWN][2];

  // Call visit(k, n, numbers n and n + 1 of the row) for this lane's pairs.
  template <class Visit> DEVICE void each(const int lane, Visit visit) {
    UNROLL for (int k = 0; k < OWN; ++k) {
      const int j = lane / QUAD % SPLIT + SPLIT * k;
      // mutant(swap <, swap ==, swap ||, dropped condition): a CPU's lane has all pairs
      if (PAIRS % SPLIT == 0 || j < PAIRS) visit(k, 2 * (lane % QUAD + QUAD * j), of[k]);
    }
  }
  // Return the sum of term(n, numbers n and n + 1) over the row.
  template <class Term> DEVICE float sum(const int lane, Term term) {
    float chain[ROW_CHAINS] = {};
    // mutant(swap >, constant 1): the same sum in another order
    each(lane, [&](int k, int n, float(&two)[2]) INLINED { chain[SPLIT > 1 ? 0 : k % ROW_CHAINS] += term(n, two); });
    // mutant(swap >, constant 1): a CPU's lane has all chains
    float sum = SPLIT > 1 ? chain[0] : (chain[0] + chain[1]) + (chain[2] + chain[3]);
#ifdef __CUDACC__
    if constexpr (SPLIT > 1) {
      sum += __shfl_xor_sync(ALL_LANES_OF_WARP, sum, QUAD);
      sum += __shfl_xor_sync(ALL_LANES_OF_WARP, sum, 2 * QUAD);
    }
    sum += __shfl_xor_sync(ALL_LANES_OF_WARP, sum, 1);
    sum += __shfl_xor_sync(ALL_LANES_OF_WARP, sum, 2);
#endif
    return sum;
  }
  // Subtract the mean and divide by the standard deviation. Padding becomes 0. Return the reciprocal standard deviation.
  DEVICE float normalize(const int lane) {
    const float mean = sum(lane, [](int, const float(&two)[2]) INLINED { return two[0] + two[1]; }) * (1.0f / WIDTH);
    const float squares = sum(lane, [&](int n, float(&two)[2]) INLINED {
      UNROLL for (int h = 0; h < 2; ++h) two[h] = n + h < WIDTH ? two[h] - mean : 0.0f;
      return math::fma(two[0], two[0], two[1] * two[1]);
    });
    const float scale = 1.0f / math::sqrt(squares * (1.0f / WIDTH) + NORM_EPSILON);
    each(lane, [&](int, int, float(&two)[2]) INLINED { UNROLL for (int h = 0; h < 2; ++h) two[h] *= scale; });
    return scale;
  }
};
