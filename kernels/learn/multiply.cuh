// multiply.cuh -- matrix products in float32 whose bits are the same on every device, in any tiling: each result is one chain
// of fused multiply-adds, in ascending order of what is summed over.
//
// A tile of TILE_ROWS x TILE_COLUMNS chains is what one member keeps in registers: vectors of a CPU, 16 registers of a GPU's
// thread. Its size changes speed and no bit.
#pragma once
#include "learn/lanes.cuh"

constexpr int PAD = 16;  // rows of matrices begin at multiples of it, so that tiles need no ragged edge
constexpr int TILE_ROWS = 4;
constexpr int TILE_COLUMNS = SIDE_FLOATS == 1 ? 4 : 2 * SIDE_FLOATS;

constexpr int padded(int n) { return (n + PAD - 1) / PAD * PAD; }

// A matrix in memory: entry (m, k) is at[m * row + k * column].
struct Entries {
  const float* at;
  int row, column;
};

// Rows [m, m + ROWS) and columns [n, n + COLUMNS) of the product.
template <int ROWS, int COLUMNS, class Start, class Finish>
DEVICE void multiply_tile(const int m, const int n, const int depth, const Entries a, const float* b, const int stride, Start start, Finish finish) {
  Lanes<COLUMNS> sum[ROWS];
  UNROLL for (int i = 0; i < ROWS; ++i) {
    float begin[COLUMNS];
    UNROLL for (int j = 0; j < COLUMNS; ++j) begin[j] = start(m + i, n + j);
    sum[i].load(begin);
  }
  const float* const left = a.at + m * a.row;
  const float* const right = b + n;
  for (int k = 0; k < depth; ++k) {
    Lanes<COLUMNS> row;
    row.load(right + k * stride);
    UNROLL for (int i = 0; i < ROWS; ++i) sum[i].add_product(left[i * a.row + k * a.column], row);
  }
  UNROLL for (int i = 0; i < ROWS; ++i) {
    float end[COLUMNS];
    sum[i].store(end);
    UNROLL for (int j = 0; j < COLUMNS; ++j) finish(m + i, n + j, end[j]);
  }
}

// finish(m, n, c) for all m in [0, rows) and n in [0, COLUMNS), where
//   c = start(m, n), then c = fma(a(m, k), b[k * stride + n], c) for k = 0, 1, ..., depth - 1.
// COLUMNS is a multiple of PAD. The team shares the tiles; who reads what others finish must sync first.
template <int COLUMNS, class Start, class Finish>
DEVICE void multiply(const Team team, const int rows, const int depth, const Entries a, const float* b, const int stride, Start start, Finish finish) {
  static_assert(COLUMNS % PAD == 0, "columns are padded");
  constexpr int WIDE = COLUMNS % TILE_COLUMNS == 0 ? TILE_COLUMNS : PAD;
  constexpr int across = COLUMNS / WIDE;
  const int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS * across;
  for (int tile : team.each(tiles)) {
    const int n = tile % across * WIDE;
    int m = tile / across * TILE_ROWS;
    if (m + TILE_ROWS <= rows) {
      multiply_tile<TILE_ROWS, WIDE>(m, n, depth, a, b, stride, start, finish);
    } else {
      NO_UNROLL for (; m < rows; ++m) multiply_tile<1, WIDE>(m, n, depth, a, b, stride, start, finish);
    }
  }
}
