// norm.cu -- Layer normalization and the activation after it: forward passes for acting and learning, and the backward pass.
//
// A warp that has the last hidden layer's activations also computes the few outputs of the network.
// Constants: ENTRIES, POSITIONS, STRIDE (of a row in memory), RELU (0: tanh), HEAD (outputs of the network, 0: in another kernel),
// HEAD_STRIDE (of a row of them), GAIN_STRIDE, BIASES_AT and TOTAL_FLOATS (layout of the sums), those of sequences.cuh.
// Generated: HALF.
// call: kernel arguments (drive/launch.cuh).
#include "learn/layerwise/norm_rows.cuh"

static_assert(HEAD == 0 || POSITIONS == 1, "outputs follow a hidden layer");
struct Workspace {};

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

// ---- passes ----

DEVICE void normalize_tile(const Rows& call, const Team team, const int e) {
  if (!computes(team) || (call.skip != nullptr && *call.skip > 0.0f)) return;
  each_row(call.rows, call.tile, e, [&](const size_type row) INLINED {
    Entry* const out = call.out + place_of(row);
    Lane x;
    const Scaling of = normalize_row(team, call.in + place_of(row), x);
    each_entry<ENTRIES>(team, [&](int i, int n) INLINED {
      put(out[n], activation<RELU>(math::fma(x[i], call.of.gain[n], call.of.bias[n])));
      if constexpr (HEAD > 0) x[i] = number(out[n]);  // mutant(swap >): more work, same result
    });
    if (call.moments != nullptr) {
      call.moments[2 * row] = of.mean;  // all lanes store the same
      call.moments[2 * row + 1] = of.scale;
    }
    // Outputs of the network.
    UNROLL for (int k = 0; k < HEAD; ++k) {
      const float output = output_of(team, x, call.head + k * STRIDE, call.head_bias[k]);
      if (lane_of(team) == 0) call.outputs[row * HEAD_STRIDE + k] = output;
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
  GainSums sums{};
  each_row(rows_of(call.learn), call.tile, e, [&](const size_type row) INLINED {
    const BackwardRow of(call, row);
    Lane grad, y;
    fill(team, grad, [&](int, int n) INLINED { return of.scaled_grad(n); });
    fill(team, y, [&](int, int n) INLINED { return of.normalized(n); });
    if constexpr (HALF) sums.add(team, grad, y);
    differentiate_norm(team, grad, y, call.of.gain, of.scale, of.out_grad);
  });
  if constexpr (HALF) {
    float* const to = call.partial_sums + (size_type)e * TOTAL_FLOATS;
    each_entry<ENTRIES>(team, [&](int i, int n) INLINED {
      to[n * GAIN_STRIDE] = sums.gain[i];
      to[BIASES_AT + n] = sums.bias[i];
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
  const int columns = math::min(CHAINS_OF_LANE, ENTRIES - first);
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
