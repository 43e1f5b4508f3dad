// norm.cuh -- Layer normalization of a row by a quad of lanes, for networks on tensor cores.
//
// Source: Ba et al. 2016, "Layer normalization". Lane t of a quad has the pairs of columns t, t + 4, ... of a row, as accumulator
// fragments do, so that play/tensor.cuh has the same bits. A thread of a CPU has a whole row.
#pragma once
#include "drive/math.cuh"

constexpr float NORM_EPSILON = 1e-5f;

#ifdef __CUDACC__
constexpr int QUAD = 4;
DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(ALL_LANES_OF_WARP, x, 1);
  return x + __shfl_xor_sync(ALL_LANES_OF_WARP, x, 2);
}
#else
constexpr int QUAD = 1;
DEVICE float quad_sum(float x) { return x; }
#endif

// Columns of a row with WIDTH numbers, padded to PADDED, in one lane. All lanes of a warp call the functions together.
template <int WIDTH, int PADDED> struct NormRow {
  static constexpr int PAIRS = PADDED / 2 / QUAD;
  float of[PAIRS][2];

  // Call visit(n, numbers n and n + 1 of the row).
  template <class Visit> DEVICE void each(const int lane, Visit visit) {
    UNROLL for (int j = 0; j < PAIRS; ++j) visit(2 * (lane % QUAD + QUAD * j), of[j]);
  }
  // Subtract the mean and divide by the standard deviation. Padding becomes 0. Return the reciprocal standard deviation.
  DEVICE float normalise(const int lane) {
    float sums[2] = {}, squares[2] = {};
    each(lane, [&](int, const float(&two)[2]) INLINED { UNROLL for (int h = 0; h < 2; ++h) sums[h] += two[h]; });
    const float mean = quad_sum(sums[0] + sums[1]) * (1.0f / WIDTH);
    each(lane, [&](int n, float(&two)[2]) INLINED {
      UNROLL for (int h = 0; h < 2; ++h) {
        two[h] = n + h < WIDTH ? two[h] - mean : 0.0f;
        squares[h] = math::fma(two[h], two[h], squares[h]);
      }
    });
    const float scale = 1.0f / math::sqrt(quad_sum(squares[0] + squares[1]) * (1.0f / WIDTH) + NORM_EPSILON);
    each(lane, [&](int, float(&two)[2]) INLINED { UNROLL for (int h = 0; h < 2; ++h) two[h] *= scale; });
    return scale;
  }
};
