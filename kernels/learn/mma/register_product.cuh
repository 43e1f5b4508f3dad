// register_product.cuh -- Products of ROWS rows with weights that stay in registers for all steps of a recurrent layer.
//
// A warp computes 16 of the SIZE units, and each of its threads four neighboring units of two rows. Fragment columns are permuted
// for this, so that a thread's accesses to global memory are 8 bytes wide and four threads share a sector. Source of the fragment
// layouts: mma.cuh.
#pragma once
#include "learn/mma/mma.cuh"

constexpr int ROWS = 16;

// Four neighboring units of a row. A thread owns QUADS of them, and this is its `number`-th. Their units form COLUMNS different
// groups of four.
struct Quad { int number, row, unit, column; };

// Four numbers in memory as bfloat16, aligned to 8 bytes.
struct alignas(8) MAY_ALIAS Four {
  u32 low, high;

  DEVICE float operator[](const int j) const {
    const u32 word = j < 2 ? low : high;
    return j % 2 == 0 ? first_of(word) : second_of(word);
  }
};
DEVICE Four four(const float (&x)[4]) { return {pair(x[0], x[1]), pair(x[2], x[3])}; }
DEVICE Four& four_at(bf16* at) { return *(Four*)at; }
DEVICE const Four& four_at(const bf16* at) { return *(const Four*)at; }

#ifdef __CUDACC__
constexpr int QUADS = 2, COLUMNS = 1;
constexpr bool ALL_WARPS = TEAM == 2 * SIZE;  // otherwise the last warps have no units
DEVICE bool has_units(const Team team) { return ALL_WARPS || team.rank < 2 * SIZE; }
// Index of this thread among those that own the same units.
DEVICE int bias_sum_of(const Team team) { return team.rank % WARP_SIZE / 4; }

template <class Visit> DEVICE void each_quad(const Team team, Visit visit) {
  const int lane = team.rank % WARP_SIZE;
  if (!has_units(team)) return;
  UNROLL for (int i = 0; i < QUADS; ++i) visit(Quad{i, lane / 4 + 8 * i, team.rank / WARP_SIZE * 16 + lane % 4 * 4, 0});
}

// Product: ROWS x (PARTS x SIZE) = ROWS x K times K x (PARTS x SIZE).
template <int PARTS, int K> struct RegisterProduct {
  static constexpr int DEPTH = K / 16, CHAINS = PARTS == 1 ? 3 : 1;  // chains of dependent mma
  u32 weights[PARTS][DEPTH][2][2];
  float sum[CHAINS][PARTS][2][4];

  // Load the B fragments from weight(part, unit, k).
  template <class Weight> DEVICE void load(const Team team, Weight weight) {
    const int lane = team.rank % WARP_SIZE, column = lane / 4;
    if (!has_units(team)) return;
    UNROLL for (int part = 0; part < PARTS; ++part) {
      UNROLL for (int half = 0; half < 2; ++half) {
        const int unit = team.rank / WARP_SIZE * 16 + column / 2 * 4 + 2 * half + column % 2;
        UNROLL for (int block = 0; block < DEPTH; ++block) {
          UNROLL for (int j = 0; j < 2; ++j) {
            const int k = 16 * block + 8 * j + lane % 4 * 2;
            weights[part][block][half][j] = pair(weight(part, unit, k), weight(part, unit, k + 1));
          }
        }
      }
    }
  }
  // Multiply all rows by the weights in registers.
  DEVICE void multiply(const Team team, const Matrix<K> left) {
    if (!has_units(team)) return;
    UNROLL for (int block = 0; block < DEPTH; ++block) {
      u32 a[4];
      load_a<false>(a, left, 0, 16 * block);
      UNROLL for (int part = 0; part < PARTS; ++part) {
        UNROLL for (int half = 0; half < 2; ++half) {
          const u32(&b)[2] = weights[part][block][half];
          float(&c)[4] = sum[block % CHAINS][part][half];
          if (block < CHAINS) mma_zero(c, a, b[0], b[1]);
          else mma_add(c, a, b[0], b[1]);
        }
      }
    }
  }
  // Return the product for unit j of a quad.
  DEVICE float at(const int part, const Quad quad, const int j) const {
    float all = sum[0][part][j / 2][2 * quad.number + j % 2];
    UNROLL for (int chain = 1; chain < CHAINS; ++chain) all += sum[chain][part][j / 2][2 * quad.number + j % 2];
    return all;
  }
};
#else
// mutant(swap >, swap -, swap / 2, swap / 3): more room, never read
constexpr int ACROSS = SIZE / 4, QUADS = (ROWS * ACROSS + TEAM - 1) / TEAM, COLUMNS = ACROSS > TEAM ? ACROSS / TEAM : 1;
static_assert(ACROSS % TEAM == 0 || TEAM % ACROSS == 0, "a member owns the same units of each of its rows");
DEVICE int bias_sum_of(const Team team) { return team.rank / ACROSS; }

template <class Visit> DEVICE void each_quad(const Team team, Visit visit) {
  for (int k = 0, i = team.rank; i < ROWS * ACROSS; ++k, i += TEAM) visit(Quad{k, i / ACROSS, i % ACROSS * 4, k % COLUMNS});
}

template <int PARTS, int K> struct RegisterProduct {
  float weights[K][PARTS * SIZE], sum[ROWS][PARTS * SIZE];

  template <class Weight> DEVICE void load(const Team, Weight weight) {
    for (int part = 0; part < PARTS; ++part) {
      for (int unit = 0; unit < SIZE; ++unit) {
        // mutant(swap <): the row beyond is `sum`, which is cleared later
        for (int k = 0; k < K; ++k) weights[k][part * SIZE + unit] = first_of(pair(weight(part, unit, k), 0.0f));
      }
    }
  }
  DEVICE void multiply(const Team, const Matrix<K> left) {
    for (int m = 0; m < ROWS; ++m) {
      for (float& entry : sum[m]) entry = 0.0f;
      for (int k = 0; k < K; ++k) {
        const float a = wide(left.row(m)[k]);
        for (int n = 0; n < PARTS * SIZE; ++n) sum[m][n] += a * weights[k][n];
      }
    }
  }
  DEVICE float at(const int part, const Quad quad, const int j) const { return sum[quad.row][part * SIZE + quad.unit + j]; }
};
#endif
