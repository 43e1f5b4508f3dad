// norm.cu -- Layer normalization and the activation after it: forward passes for acting and learning, and the backward pass.
//
// A row in memory is the output of a hidden layer, or of a convolution with WIDTH channels at each of POSITIONS positions. Each
// position is normalized as a row of its own, called a row below.
// Source: Ba et al. 2016, with PyTorch's epsilon. With x a row of WIDTH entries and s its reciprocal standard deviation:
//   y = (x - mean) s,  out = activation(gain y + bias).
// A warp of a GPU computes a row, which it reads once. The order of sums over a row also suits vectors of a CPU: CHAINS_OF_ROW
// partial sums, of which chain c adds entries c, c + CHAINS_OF_ROW, ..., then a tree over the chains.
// A warp that has the last hidden layer's activations also computes the few outputs of the network.
// Constants: WIDTH, POSITIONS, STRIDE (of a row in memory), RELU (0: tanh), HEAD (outputs of the network, 0: in another kernel),
// HEAD_STRIDE (of a row of them), GAIN_STRIDE, BIASES_AT and TOTAL_FLOATS (layout of the sums), those of sequences.cuh.
// Generated: HALF.
// call: kernel arguments (drive/launch.cuh).
#include "learn/layerwise/row.cuh"
#include "learn/layerwise/sequences.cuh"

using namespace policy;  // functions.cuh

constexpr int CHAINS_OF_ROW = 32;
constexpr int SEGMENTS = (WIDTH + CHAINS_OF_ROW - 1) / CHAINS_OF_ROW, PADDED = SEGMENTS * CHAINS_OF_ROW;
constexpr float EPSILON = 1e-5f;
static_assert(HEAD == 0 || POSITIONS == 1, "outputs follow a hidden layer");
// Offset of a row.
DEVICE size_type place_of(const size_type row) {
  return POSITIONS == 1 ? row * STRIDE : row / POSITIONS * STRIDE + row % POSITIONS * WIDTH;
}

struct Workspace {};

struct Gains {
  const float* gain;  // (WIDTH)
  const float* bias;  // (WIDTH)
};
// Arguments of a forward pass.
struct Rows {
  int rows, tile;     // number of all rows, and of a team's
  const float* skip;  // (1): if 1, the kernel returns immediately. Null for acting
  const Entry* in;    // rows: results of a product
  Entry* out;         // rows: activations
  float* moments;     // (rows, 2): mean and reciprocal standard deviation, or null
  Gains of;
  const Entry* head;       // (HEAD, STRIDE): weights of the last layer
  const float* head_bias;  // (HEAD)
  float* outputs;          // (rows, HEAD_STRIDE)
};
// Arguments of the backward pass over a minibatch.
struct Norm {
  Learn learn;
  int tile;              // rows of a team in `backwards`
  const Entry* in;       // rows
  const Entry* out;      // rows
  Entry* out_grad;       // rows: gradients w.r.t. `out`, then w.r.t. `in`
  const float* moments;  // rows (2)
  Gains of;
  float* partial_sums;       // (splits, TOTAL_FLOATS), from this layer's part on. HALF: a split is a tile
};

// ---- the lanes of a row ----

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
    // mutant(swap <, swap +): a CPU has one lane, and the loop ends before
    if (const int n = i * APART + lane_of(team); n < COUNT) visit(i, n);
  }
}
// Fill the numbers of a Lane with value(i, n).
template <class Value> DEVICE void fill(const Team team, Lane& x, Value value) {
  each_entry<PADDED>(team, [&](int i, int n) INLINED { x[i] = n < WIDTH ? value(i, n) : 0.0f; });
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
    for (int c = 0; c < half; ++c) chain[c] += chain[c + half];
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

// ---- passes ----

DEVICE void normalize_tile(const Rows& call, const Team team, const int e) {
  if (!computes(team) || (call.skip != nullptr && *call.skip > 0.0f)) return;
  each_row(call.rows, call.tile, e, [&](const size_type row) INLINED {
    const Entry* const in = call.in + place_of(row);
    Entry* const out = call.out + place_of(row);
    Lane x;
    fill(team, x, [&](int, int n) INLINED { return number(in[n]); });
    const float mean = sum_of_row([&](float sum, int i) INLINED { return sum + x[i]; }) / (float)WIDTH;
    fill(team, x, [&](int i, int) INLINED { return x[i] - mean; });
    const float squares = sum_of_row([&](float sum, int i) INLINED { return math::fma(x[i], x[i], sum); });
    const float scale = 1.0f / math::sqrt(squares / (float)WIDTH + EPSILON);
    each_entry<WIDTH>(team, [&](int i, int n) INLINED {
      put(out[n], activation<RELU>(math::fma(x[i] * scale, call.of.gain[n], call.of.bias[n])));
      if constexpr (HEAD > 0) x[i] = number(out[n]);  // mutant(swap >): more work, same result
    });
    if (call.moments != nullptr) {
      call.moments[2 * row] = mean;  // all lanes store the same
      call.moments[2 * row + 1] = scale;
    }
    // Outputs of the network.
    UNROLL for (int k = 0; k < HEAD; ++k) {
      Lane weight;
      fill(team, weight, [&](int, int n) INLINED { return constant_number(call.head + k * STRIDE + n); });
      const float sum = sum_of_row([&](float sum, int i) INLINED { return math::fma(x[i], weight[i], sum); });
      if (lane_of(team) == 0) call.outputs[row * HEAD_STRIDE + k] = sum + call.head_bias[k];
    }
  });
}

// One row of the backward pass.
struct BackwardRow {
  const Entry* in;
  const Entry* out;
  Entry* out_grad;
  float mean, scale;

  DEVICE BackwardRow(const Norm& call, const size_type row)
      : in(call.in + place_of(row)), out(call.out + place_of(row)), out_grad(call.out_grad + place_of(row)),
        mean(call.moments[2 * row]), scale(call.moments[2 * row + 1]) {}
  // Gradient w.r.t. gain[n] y + bias[n], and y.
  DEVICE float scaled_grad(const int n) const { return number(out_grad[n]) * activation_gradient<RELU>(number(out[n])); }
  DEVICE float normalized(const int n) const { return (number(in[n]) - mean) * scale; }
};

DEVICE int rows_of(const Learn& call) { return steps_of(call) * call.blocks * most_sequences(call) * POSITIONS; }

// Replace gradients w.r.t. `out` by those w.r.t. `in`. Places without a sequence have gradients of 0. HALF: also add up the
// gradients w.r.t. gains and biases over the rows of the tile.
DEVICE void backward_tile(const Norm& call, const Team team, const int e) {
  if (!computes(team) || *call.learn.skip > 0.0f) return;
  Lane gains{}, biases{};
  each_row(rows_of(call.learn), call.tile, e, [&](const size_type row) INLINED {
    const BackwardRow of(call, row);
    Lane grad, y;
    fill(team, grad, [&](int, int n) INLINED { return of.scaled_grad(n); });
    fill(team, y, [&](int, int n) INLINED { return of.normalized(n); });
    if constexpr (HALF) each_entry<WIDTH>(team, [&](int i, int) INLINED {
      gains[i] = math::fma(grad[i], y[i], gains[i]);
      biases[i] += grad[i];
    });
    fill(team, grad, [&](int i, int n) INLINED { return grad[i] * call.of.gain[n]; });
    // Means of the gradient, and of its product with the normalized row.
    const float mean = sum_of_row([&](float sum, int i) INLINED { return sum + grad[i]; }) / (float)WIDTH;
    const float with = sum_of_row([&](float sum, int i) INLINED { return math::fma(grad[i], y[i], sum); }) / (float)WIDTH;
    each_entry<WIDTH>(team, [&](int i, int n) INLINED {
      put(of.out_grad[n], of.scale * (grad[i] - mean - y[i] * with));
    });
  });
  if constexpr (HALF) {
    float* const to = call.partial_sums + (size_type)e * TOTAL_FLOATS;
    each_entry<WIDTH>(team, [&](int i, int n) INLINED {
      to[n * GAIN_STRIDE] = gains[i];
      to[BIASES_AT + n] = biases[i];
    });
  }
}

// Sums of one thread over rows, of its columns of a segment.
struct Columns {
  float gain[CHAINS_OF_LANE], bias[CHAINS_OF_LANE];
  DEVICE void add(const Columns& other) {
    // mutant(swap +=): a sum over blocks is subtracted twice
    for (int c = 0; c < CHAINS_OF_LANE; ++c) gain[c] += other.gain[c];
    // mutant(swap +=): likewise
    for (int c = 0; c < CHAINS_OF_LANE; ++c) bias[c] += other.bias[c];
  }
};

// Not HALF: add up the gradients w.r.t. the gains and biases of a segment over the blocks of a split, so that bits depend only on
// blocks. Runs before `backwards`, which replaces the gradients w.r.t. `out`.
DEVICE void learn_segment(const Norm& call, const Team team, const int e) {
  const Learn& learn = call.learn;
  const int split = e / SEGMENTS, first = e % SEGMENTS * CHAINS_OF_ROW + lane_of(team);
  const int columns = math::min(CHAINS_OF_LANE, WIDTH - first);
  if (!computes(team) || *learn.skip > 0.0f) return;
  // Add rows in order: rows of a block, blocks of a part, parts.
  Columns sums{};
  each_part(learn, split, [&](const int begin, const int end) INLINED {
    Columns of_part{};
    for (int b = begin; b < end; ++b) {
      const Sequences of(learn, b);
      Columns of_block{};
      UNROLL_TIMES(4) for (int r = 0; r < of.rows() * POSITIONS; ++r) {
        const BackwardRow row(call, (size_type)of.row(r / POSITIONS) * POSITIONS + r % POSITIONS);
        for (int c = 0; c < columns; ++c) {
          const float grad = row.scaled_grad(first + c);
          of_block.gain[c] = math::fma(grad, row.normalized(first + c), of_block.gain[c]);
          of_block.bias[c] += grad;
        }
      }
      of_part.add(of_block);
    }
    sums.add(of_part);
  });
  float* const to = call.partial_sums + (size_type)split * TOTAL_FLOATS;
  for (int c = 0; c < columns; ++c) {
    to[(first + c) * GAIN_STRIDE] = sums.gain[c];
    to[BIASES_AT + first + c] = sums.bias[c];
  }
}

#include "drive/launch.cuh"
KERNEL(normalize, Rows, (call.rows + call.tile - 1) / call.tile, normalize_tile(call, team, e))
KERNEL(gradient, Norm, call.learn.splits * SEGMENTS, learn_segment(call, team, e))
KERNEL(backwards, Norm, (rows_of(call.learn) + call.tile - 1) / call.tile, backward_tile(call, team, e))
