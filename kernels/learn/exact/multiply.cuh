// multiply.cuh -- Float32 matrix products with the same bits on every device and in any tiling. Each result is one chain of fused
// multiply-adds in ascending order of k.
//
// A CPU thread keeps tiles of vectors in registers. A GPU thread keeps 8 x 8 accumulators and prefetches operands, four k at a
// time.
#pragma once
#include "learn/exact/lanes.cuh"

// A matrix in memory. Entry (m, k) is at[m * stride + k] or, if BY_COLUMN, at[k * stride + m].
template <bool BY_COLUMN> struct Entries {
  const float* at;
  int stride;
  DEVICE float get(int m, int k) const { return BY_COLUMN ? at[k * stride + m] : at[m * stride + k]; }
};

// ---- one CPU thread ----

constexpr int TILE_ROWS = SIDE_FLOATS == 16 ? 8 : 6;  // AVX-512 has 32 vector registers, AVX2 has 16
constexpr int TILE_COLUMNS = SIDE_FLOATS == 1 ? 4 : 2 * SIDE_FLOATS;

// Compute rows [m, m + ROWS) and columns [n, n + COLUMNS) of the product.
template <int ROWS, int COLUMNS, bool BY_COLUMN, class Start, class Finish>
DEVICE void multiply_vectors(const int m, const int n, const int depth, const Entries<BY_COLUMN> a, const float* b,
                             const int stride, Start start, Finish finish) {
  Lanes<COLUMNS> sum[ROWS];
  UNROLL for (int i = 0; i < ROWS; ++i) {
    start(m + i, n, sum[i]);
  }
  const Entries<BY_COLUMN> left{a.at + m * (BY_COLUMN ? 1 : a.stride), a.stride};
  const float* const right = b + n;
  for (int k = 0; k < depth; ++k) {
    Lanes<COLUMNS> row;
    row.load(right + k * stride);
    UNROLL for (int i = 0; i < ROWS; ++i) sum[i].add_product(left.get(i, k), row);
  }
  UNROLL for (int i = 0; i < ROWS; ++i) finish(m + i, n, sum[i]);
}

// ---- a thread team ----

// Operands of STEP products of a tile. Eight columns are two groups of four at a distance of `gap`, so that neighboring threads
// read neighboring numbers.
template <int ROWS, int COLUMNS, int STEP> struct Operands {
  float left[STEP][ROWS], right[STEP][COLUMNS];

  template <bool BY_COLUMN>
  DEVICE void read(const int m, const int n, const int gap, const int k, const Entries<BY_COLUMN> a, const float* b,
                   const int stride) {
    // Operands from b.
    UNROLL for (int s = 0; s < STEP; ++s) {
      UNROLL for (int j = 0; j < COLUMNS; j += 4) read_four(right[s] + j, b + (k + s) * stride + n + (j == 0 ? 0 : gap));
    }
    // Operands from a, four at a time if its layout allows it.
    if constexpr (BY_COLUMN && ROWS % 4 == 0) {
      UNROLL for (int s = 0; s < STEP; ++s) {
        UNROLL for (int i = 0; i < ROWS; i += 4) read_four(left[s] + i, a.at + (k + s) * a.stride + m + i);
      }
    } else if constexpr (!BY_COLUMN && STEP == 4) {
      UNROLL for (int i = 0; i < ROWS; ++i) {
        float four[4];
        read_four(four, a.at + (m + i) * a.stride + k);
        UNROLL for (int s = 0; s < 4; ++s) left[s][i] = four[s];
      }
    } else {
      UNROLL for (int s = 0; s < STEP; ++s) {
        UNROLL for (int i = 0; i < ROWS; ++i) left[s][i] = a.get(m + i, k + s);
      }
    }
  }
  DEVICE static void read_four(float* to, const float* from) {
    Four four;
    four.load(from);
    UNROLL for (int j = 0; j < 4; ++j) to[j] = four.of[j];
  }
  DEVICE void add_products(float (&sum)[ROWS][COLUMNS]) const {
    UNROLL for (int s = 0; s < STEP; ++s) {
      UNROLL for (int i = 0; i < ROWS; ++i) {
        UNROLL for (int j = 0; j < COLUMNS; ++j) sum[i][j] = math::fma(left[s][i], right[s][j], sum[i][j]);
      }
    }
  }
};

template <int ROWS, int COLUMNS, bool BY_COLUMN, class Start, class Finish, class Revisit>
DEVICE void multiply_tile(const int m, const int n, const int gap, const int rows, const int depth, const Entries<BY_COLUMN> a,
                          const float* b, const int stride, Start start, Finish finish, Revisit revisit) {
  constexpr int STEP = 4;
  float sum[ROWS][COLUMNS];
  const auto each_four = [&](auto visit) INLINED {
    UNROLL for (int i = 0; i < ROWS; ++i) {
      UNROLL for (int j = 0; j < COLUMNS; j += 4) {
        Four four;
        UNROLL for (int l = 0; l < 4; ++l) four.of[l] = sum[i][j + l];
        if (m + i < rows) visit(m + i, n + (j == 0 ? 0 : gap), four);
        UNROLL for (int l = 0; l < 4; ++l) sum[i][j + l] = four.of[l];
      }
    }
  };
  // Initialize the accumulators.
  UNROLL for (int i = 0; i < ROWS; ++i) UNROLL for (int j = 0; j < COLUMNS; ++j) sum[i][j] = 0.0f;
  each_four(start);
  // Main loop, double-buffered: the next operands are loaded while the current ones are multiplied.
  int k = 0;
  if (depth >= STEP) {  // mutant(swap >=): same order, one at a time
    Operands<ROWS, COLUMNS, STEP> now, next;
    now.read(m, n, gap, 0, a, b, stride);
    UNROLL_TIMES(2) for (k = STEP; k + STEP <= depth; k += STEP) {  // mutant(swap <=): same order, one at a time
      next.read(m, n, gap, k, a, b, stride);
      now.add_products(sum);
      now = next;
    }
    now.add_products(sum);
  }
  // Remaining k, one at a time.
  UNROLL_TIMES(1) for (; k < depth; ++k) {
    Operands<ROWS, COLUMNS, 1> last;
    last.read(m, n, gap, k, a, b, stride);
    last.add_products(sum);
  }
  // Epilogue.
  each_four(finish);
  if constexpr (Revisit::NEEDED) {
    NO_UNROLL for (int i = 0; i < ROWS && m + i < rows; ++i) {
      UNROLL for (int j = 0; j < COLUMNS; j += 4) revisit.four(m + i, n + (j == 0 ? 0 : gap));
    }
  }
}

// Rows and columns of the tile that each of `members` threads computes, in a product of size (rows, columns).
constexpr int rows_of_tile(const int rows, const int columns, const int members) {
  // mutant(swap *): other tiles, same bits
  const int each = rows * columns / members, wanted = each >= 32 ? 8 : each >= 16 ? 4 : each >= 8 ? 2 : 1;
  return wanted < rows ? wanted : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;  // mutant(swap <, swap >=): other tiles, same bits
}
constexpr int columns_of_tile(const int rows, const int columns, const int members) {
  return columns % 8 == 0 && rows * columns / members >= 64 ? 8 : 4;  // mutant(swap /): other tiles, same bits
}
constexpr int fours(int n) { return (n + 3) / 4 * 4; }
constexpr int tiles_of(const int rows, const int columns, const int members) {
  const int high = rows_of_tile(rows, columns, members), wide = columns_of_tile(rows, columns, members);
  return (rows + high - 1) / high * (columns / wide);  // mutant(swap -, swap *, swap /): another thread does the same work
}

// Compute a matrix product. The epilogue finish(m, n, c) is called for all m in [0, rows) and n in [0, COLUMNS), where
//   c = start(m, n), then c = fma(a(m, k), b[k * stride + n], c) for k = 0, 1, ..., depth - 1.
// start(m, n, some) and finish(m, n, some) process several columns, from n on, in `some`, Lanes or Four. n may reach
// padded(COLUMNS). Then the same thread calls revisit.four(m, n) for columns [n, n + 4), for long code that should not be unrolled
// for all numbers. rows <= MOST_ROWS. About MEMBERS threads divide the tiles. Sync before reading results of other threads.
struct NoRevisit { static constexpr bool NEEDED = false; };
template <int MOST_ROWS, int COLUMNS, int MEMBERS, bool BY_COLUMN, class Start, class Finish, class Revisit = NoRevisit>
DEVICE void multiply(const Team team, const int rows, const int depth, const Entries<BY_COLUMN> a, const float* b,
                     const int stride, Start start, Finish finish, Revisit revisit = {}) {
  if constexpr (TEAM == 1) {
    constexpr int WIDE = padded(COLUMNS) % TILE_COLUMNS == 0 ? TILE_COLUMNS : PAD;
    constexpr int across = padded(COLUMNS) / WIDE;
    // Full tiles of rows, then tiles of four rows, then single rows. Eight remaining rows are two tiles of four, since six rows
    // would leave two single ones.
    const bool ends_with_eight = TILE_ROWS == 6 && rows > 6 && rows % 6 == 2;  // mutant(swap >): equal there
    const int tiles = ((rows + TILE_ROWS - 1) / TILE_ROWS - ends_with_eight) * across;  // mutant(swap -): tiles without rows
    for (int tile : team.each(tiles)) {
      const int n = tile % across * WIDE;
      int m = tile / across * TILE_ROWS;
      if (m + TILE_ROWS <= rows && !(ends_with_eight && m + 8 == rows)) {  // mutant(swap <=): other tiles, same bits
        multiply_vectors<TILE_ROWS, WIDE>(m, n, depth, a, b, stride, start, finish);
      } else {
        // mutant(swap <=): other tiles, same bits
        NO_UNROLL for (; m + 4 <= rows; m += 4) multiply_vectors<4, WIDE>(m, n, depth, a, b, stride, start, finish);
        NO_UNROLL for (; m < rows; ++m) multiply_vectors<1, WIDE>(m, n, depth, a, b, stride, start, finish);
      }
    }
  } else {
    constexpr int USED = fours(COLUMNS), WIDE = columns_of_tile(MOST_ROWS, USED, MEMBERS), across = USED / WIDE;
    constexpr int HIGH = rows_of_tile(MOST_ROWS, USED, MEMBERS);
    const int tiles = (rows + HIGH - 1) / HIGH * across;  // mutant(swap -): tiles without rows
    NO_UNROLL for (int tile : team.each(tiles)) {
      const int m = tile / across * HIGH, n = tile % across * 4;
      multiply_tile<HIGH, WIDE>(m, n, USED / 2, rows, depth, a, b, stride, start, finish, revisit);
    }
  }
}
