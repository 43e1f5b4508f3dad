// pipeline.cuh -- Asynchronous copies to shared memory, and an accumulator over many rows of two matrices, tiled over warps.
#pragma once
#include "learn/mma/mma.cuh"

#ifdef __CUDACC__
// Start an asynchronous copy of 16 bytes from global to shared memory. If not `there`, zeros are written instead.
DEVICE void copy_async(bf16* to, const bf16* from, const bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
// The same for one number.
DEVICE void copy_async(float* to, const float* from, const bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 4 : 0) : "memory");
}
// Commit all copies since the last call as one stage.
DEVICE void commit_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Wait until all stages that this thread has committed are complete, except for the last LEFT.
template <int LEFT> DEVICE void wait_stages() { asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory"); }

// Number of warps among which the rows of m x n blocks of 16 x 16 are divided, and the columns among the others, so that the
// busiest warp has the least work. Bits of the right operand are expanded by each warp that needs them.
constexpr int best_row_warps(const int m, const int n, const bool right_bits) {
  int best = 1, least = 1 << 30;
  for (int warps = 1; warps <= WARPS; warps *= 2) {
    const int tall = (m + warps - 1) / warps, across = (n + WARPS / warps - 1) / (WARPS / warps);
    // Cost of products, then of operands.
    const int cost = 64 * tall * across + (right_bits ? 30 * tall + 100 * across : tall + across);
    if (cost < least) {
      least = cost;
      best = warps;
    }
  }
  return best;
}

// Rectangles of blocks, for which a warp loads the fewest fragments. Warps with fewer blocks multiply some of them twice.
template <int M, int N, bool RIGHT_BITS> struct TiledSplit {
  static constexpr int ROW_WARPS = best_row_warps(M / 16, N / 16, RIGHT_BITS), COLUMN_WARPS = WARPS / ROW_WARPS;
  static constexpr int TALL = (M / 16 + ROW_WARPS - 1) / ROW_WARPS, WIDE = (N / 16 + COLUMN_WARPS - 1) / COLUMN_WARPS;
  static constexpr int STRIPS = TALL;
  static constexpr bool EVEN = TALL * ROW_WARPS == M / 16 && WIDE * COLUMN_WARPS == N / 16, EVEN_STRIPS = EVEN;
  static DEVICE int row(int warp, int i, int = 0) { return warp % ROW_WARPS * TALL * 16 + 16 * i; }
  static DEVICE int column(int warp, int, int j) { return warp / ROW_WARPS * WIDE * 16 + 16 * j; }
  static DEVICE int strip(int warp, int i) { return row(warp, i); }
  static DEVICE bool has_strips(int warp) { return column(warp, 0, 0) == 0; }
};
template <int M, int N, bool RIGHT_BITS> struct TiledAccumulator : Accumulator<M, N, TiledSplit<M, N, RIGHT_BITS>> {
  typedef TiledSplit<M, N, RIGHT_BITS> Split;
  // Clamp to an existing block, for warps without one.
  static DEVICE int within(const int at, const int size) { return Split::EVEN || at < size ? at : size - 16; }

  // Add the sum over k in [0, K) of a(k, m) b(k, n) and, if `with_columns`, of a(k, m).
  template <int K, class Right> DEVICE void add(const Team team, const Matrix<M> a, const Right b, const bool with_columns) {
    const int warp = team.rank / WARP_SIZE;
    const u32 ones = team.rank % WARP_SIZE / 4 == 0 ? 0x3f803f80u : 0u;  // a B fragment whose first column is 1
    UNROLL_TIMES(2) for (int k = 0; k < K; k += 16) {
      u32 left[Split::TALL][4];
      UNROLL for (int i = 0; i < Split::TALL; ++i) load_a<true>(left[i], a, within(Split::row(warp, i), M), k);
      UNROLL for (int j = 0; j < Split::WIDE; ++j) {
        u32 right[4];
        load_b<false>(right, b, within(Split::column(warp, 0, j), N), k);
        UNROLL for (int i = 0; i < Split::TALL; ++i) {
          mma_add(this->of[i][j][0], left[i], right[0], right[1]);
          mma_add(this->of[i][j][1], left[i], right[2], right[3]);
        }
      }
      if (with_columns && Split::has_strips(warp)) {
        UNROLL for (int i = 0; i < Split::TALL; ++i) mma_add(this->columns[i], left[i], ones, ones);
      }
    }
  }
};
#else
DEVICE void copy_async(bf16* to, const bf16* from, const bool there) {
  // mutant(swap <, constant 2): one element more, never read. mutant(constant 3): 9e-41 squared is 0
  for (int k = 0; k < 8; ++k) to[k].bits = there ? from[k].bits : (u16)0;
}
// mutant(constant): outputs of rows that are never read
DEVICE void copy_async(float* to, const float* from, const bool there) { *to = there ? *from : 0.0f; }
DEVICE void commit_stage() {}
template <int LEFT> DEVICE void wait_stages() {}

template <int M, int N, bool> struct TiledAccumulator : LinearAccumulator<M, N> {
  template <int K, class Right> DEVICE void add(const Team team, const Matrix<M> a, const Right b, bool) {
    LinearAccumulator<M, N>::template add<K>(team, a, b);
  }
};
#endif
