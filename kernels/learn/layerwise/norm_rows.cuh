// norm_rows.cuh -- Layer normalization of a row by the lanes of a warp, and its gradient.
//
// A row in memory is the output of a hidden layer, or of a convolution with ENTRIES channels at each of POSITIONS positions. Each
// position is normalized as a row of its own, called a row below.
// Source: Ba et al. 2016, with PyTorch's epsilon. With x a row of ENTRIES entries and s its reciprocal standard deviation:
//   y = (x - mean) s,  out = activation(gain y + bias).
// A warp of a GPU computes a row, which it reads once. The order of sums over a row also suits vectors of a CPU: CHAINS_OF_ROW
// partial sums, of which chain c adds entries c, c + CHAINS_OF_ROW, ..., then a tree over the chains.
// Constants: ENTRIES, POSITIONS, STRIDE (of a row in memory), RELU (0: tanh), those of sequences.cuh. Generated: HALF.
#pragma once
#include "learn/layerwise/row.cuh"
#include "learn/layerwise/sequences.cuh"

using namespace policy;  // functions.cuh

constexpr int CHAINS_OF_ROW = 32;
// mutant(swap -): more padding
constexpr int SEGMENTS = (ENTRIES + CHAINS_OF_ROW - 1) / CHAINS_OF_ROW, PADDED = SEGMENTS * CHAINS_OF_ROW;
constexpr float EPSILON = 1e-5f;
// Offset of a row.
DEVICE size_type place_of(const size_type row) {
  return POSITIONS == 1 ? row * STRIDE : row / POSITIONS * STRIDE + row % POSITIONS * ENTRIES;
}

struct Gains {
  const float* gain;  // (ENTRIES)
  const float* bias;  // (ENTRIES)
};

#ifdef __CUDACC__
static_assert(TEAM == WARP_SIZE && WARP_SIZE == CHAINS_OF_ROW, "each lane has a chain");
constexpr int CHAINS_OF_LANE = 1;
DEVICE int lane_of(const Team team) { return team.rank; }
#else
constexpr int CHAINS_OF_LANE = CHAINS_OF_ROW;  // a thread computes all lanes
DEVICE int lane_of(const Team) { return 0; }
#endif

// Numbers of a row that one thread has in registers: entries lane, lane + 32, ... on a GPU, all on a CPU. After the row they are 0.
typedef float Lane[SEGMENTS * CHAINS_OF_LANE];

// Call visit(i, n) for entries n < COUNT, of which n is the i-th one of a Lane.
template <int COUNT, class Visit> DEVICE void each_entry(const Team team, Visit visit) {
  constexpr int APART = CHAINS_OF_ROW / CHAINS_OF_LANE;
  UNROLL for (int i = 0; i < (COUNT + APART - 1) / APART; ++i) {  // mutant(swap -): what follows is skipped
    // mutant(swap <, swap +, swapped arguments): a CPU has one lane, and the loop ends before
    if (const int n = i * APART + lane_of(team); n < COUNT) visit(i, n);
  }
}
// Fill the numbers of a Lane with value(i, n).
template <class Value> DEVICE void fill(const Team team, Lane& x, Value value) {
  // mutant(swapped arguments): a CPU has one lane, in which they are equal
  each_entry<PADDED>(team, [&](int i, int n) INLINED { x[i] = n < ENTRIES ? value(i, n) : 0.0f; });
}
// Return the sum over a row. add(sum, i): the sum with the i-th number of a Lane.
template <class Add> DEVICE float sum_of_row(Add add) {
  float chain[CHAINS_OF_LANE]{};
  UNROLL for (int segment = 0; segment < SEGMENTS; ++segment) {
    // mutant(swap <): a CPU does not notice one more, past the array
    for (int c = 0; c < CHAINS_OF_LANE; ++c) chain[c] = add(chain[c], segment * CHAINS_OF_LANE + c);
  }
  UNROLL for (int half = CHAINS_OF_ROW / 2; half > 0; half /= 2) {
#ifdef __CUDACC__
    chain[0] += __shfl_xor_sync(ALL_LANES_OF_WARP, chain[0], half);
#else
    for (int c = 0; c < half; ++c) chain[c] += chain[c + half];  // mutant(swap <): one more, never read
#endif
  }
  return chain[0];
}
// Load an entry that no kernel writes during this launch.
DEVICE float constant_number(const float* at) { return load_constant(at); }
DEVICE float constant_number(const bf16* at) { return number(bf16{load_constant(&at->bits)}); }

// Whether this thread computes. On a GPU the team computes each row together, on a CPU its leader does.
DEVICE bool computes(const Team team) { return CHAINS_OF_LANE < CHAINS_OF_ROW || team.leader(); }

// Call visit(row) for the rows of tile e.
template <class Visit> DEVICE void each_row(const int rows, const int tile, const int e, Visit visit) {
  const int until = math::min(rows, (e + 1) * tile);
  for (int row = e * tile; row < until; ++row) visit((size_type)row);
}

// ---- a row ----

struct Scaling { float mean, scale; };  // of a row: mean and reciprocal standard deviation

// Load a row and normalize it.
DEVICE Scaling normalize_row(const Team team, const Entry* in, Lane& y) {
  fill(team, y, [&](int, int n) INLINED { return number(in[n]); });
  const float mean = sum_of_row([&](float sum, int i) INLINED { return sum + y[i]; }) / (float)ENTRIES;
  fill(team, y, [&](int i, int) INLINED { return y[i] - mean; });
  const float squares = sum_of_row([&](float sum, int i) INLINED { return math::fma(y[i], y[i], sum); });
  const float scale = 1.0f / math::sqrt(squares / (float)ENTRIES + EPSILON);
  fill(team, y, [&](int i, int) INLINED { return y[i] * scale; });
  return Scaling{mean, scale};
}

// Output of the network: x times its weights, plus its bias.
DEVICE float output_of(const Team team, const Lane& x, const Entry* weights, const float bias) {
  Lane weight;
  fill(team, weight, [&](int, int n) INLINED { return constant_number(weights + n); });
  return sum_of_row([&](float sum, int i) INLINED { return math::fma(x[i], weight[i], sum); }) + bias;
}

// Sums over rows of the gradients w.r.t. gains and biases, in the lanes of a row.
struct GainSums {
  Lane gain, bias;

  DEVICE void add(const Team team, const Lane& grad, const Lane& y) {
    each_entry<ENTRIES>(team, [&](int i, int) INLINED {
      gain[i] = math::fma(grad[i], y[i], gain[i]);
      bias[i] += grad[i];
    });
  }
};

// Store the gradient w.r.t. a row from `grad`, that w.r.t. gain y + bias, which it overwrites.
DEVICE void differentiate_norm(const Team team, Lane& grad, const Lane& y, const float* gain, const float scale, Entry* to) {
  fill(team, grad, [&](int i, int n) INLINED { return grad[i] * gain[n]; });
  // Means of the gradient, and of its product with the normalized row.
  const float mean = sum_of_row([&](float sum, int i) INLINED { return sum + grad[i]; }) / (float)ENTRIES;
  const float with = sum_of_row([&](float sum, int i) INLINED { return math::fma(grad[i], y[i], sum); }) / (float)ENTRIES;
  each_entry<ENTRIES>(team, [&](int i, int n) INLINED { put(to[n], scale * (grad[i] - mean - y[i] * with)); });
}
