// warp_rows.cuh -- Layers of ROWS rows (a multiple of 16) in one warp's registers. The accumulator fragment of a layer is the A
// fragment of the next, so that warps do not wait for each other. Results have the bits of `product` in mma.cuh.
#pragma once
#include "learn/mma/mma.cuh"

// Place of two neighboring results: row m, columns n and n + 1, in word `word` of a lane's 16 x 16 block (block, column).
struct Spot { int m, n, block, column, word; };

#ifdef __CUDACC__
// A fragments of ROWS rows of K numbers.
template <int K> struct RowFragments {
  u32 of[ROWS / 16][K / 16][4];

  DEVICE void put(const Spot spot, const float c, const float d) { of[spot.block][spot.column][spot.word] = pair(c, d); }
  // entry(m, k) returns number k of row m.
  template <class Entry> DEVICE void fill(const int lane, Entry entry) {
    UNROLL for (int i = 0; i < ROWS / 16; ++i) {
      UNROLL for (int k = 0; k < K / 16; ++k) {
        UNROLL for (int word = 0; word < 4; ++word) {
          const int m = 16 * i + word % 2 * 8 + lane / 4, n = 16 * k + word / 2 * 8 + lane % 4 * 2;
          of[i][k][word] = pair(entry(m, n), entry(m, n + 1));
        }
      }
    }
  }
};

// Multiply rows by weights. Epilogue finish(spot, c, d): c is the sum over k in [0, K) of left(m, k) weights(n, k), and d is that
// of column n + 1.
template <int N, int K, class Finish>
DEVICE void multiply_rows(const int lane, const RowFragments<K>& left, const Matrix<K> weights, Finish finish) {
  UNROLL for (int column = 0; column < N / 16; ++column) {
    float sum[ROWS / 16][2][4];
    // Accumulate 16 columns.
    UNROLL for (int k = 0; k < K / 16; ++k) {
      u32 right[4];
      load_b<true>(right, weights, 16 * column, 16 * k);
      UNROLL for (int i = 0; i < ROWS / 16; ++i) {
        UNROLL for (int half = 0; half < 2; ++half) {
          if (k == 0) mma_zero(sum[i][half], left.of[i][0], right[2 * half], right[2 * half + 1]);
          else mma_add(sum[i][half], left.of[i][k], right[2 * half], right[2 * half + 1]);
        }
      }
    }
    // Epilogue.
    UNROLL for (int half = 0; half < 2; ++half) {
      UNROLL for (int i = 0; i < ROWS / 16; ++i) {
        UNROLL for (int lower = 0; lower < 2; ++lower) {
          const Spot spot{16 * i + 8 * lower + lane / 4, 16 * column + 8 * half + lane % 4 * 2, i, column, 2 * half + lower};
          finish(spot, sum[i][half][2 * lower], sum[i][half][2 * lower + 1]);
        }
      }
    }
  }
}
#else
template <int K> struct RowFragments {
  u32 of[ROWS][K / 2];  // mutant(swap /): more room, never read

  DEVICE void put(const Spot spot, const float c, const float d) { of[spot.m][spot.n / 2] = pair(c, d); }
  template <class Entry> DEVICE void fill(int, Entry entry) {
    for (int m = 0; m < ROWS; ++m) {
      for (int n = 0; n < K; n += 2) of[m][n / 2] = pair(entry(m, n), entry(m, n + 1));
    }
  }
};

template <int N, int K, class Finish>
DEVICE void multiply_rows(int, const RowFragments<K>& left, const Matrix<K> weights, Finish finish) {
  for (int m = 0; m < ROWS; ++m) {
    float sum[N] = {};
    for (int k = 0; k < K; ++k) {
      const float a = k % 2 == 0 ? first_of(left.of[m][k / 2]) : second_of(left.of[m][k / 2]);
      for (int n = 0; n < N; ++n) sum[n] += a * wide(weights.row(n)[k]);
    }
    for (int n = 0; n < N; n += 2) finish(Spot{m, n, 0, 0, 0}, sum[n], sum[n + 1]);  // mutant(constant 4): not used on a CPU
  }
}
#endif
