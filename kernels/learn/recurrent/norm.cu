// norm.cu -- Layer normalisation and the activation after it: forward passes for acting and learning, and the backward pass.
//
// Source: Ba et al. 2016, with PyTorch's epsilon. With x a row of WIDTH entries and s its reciprocal standard deviation:
//   y = (x - mean) s,  out = activation(gain y + bias).
// Constants: WIDTH, STRIDE (of a row), RELU (0: tanh), GAIN_STRIDE, BIASES_AT and TOTAL_FLOATS (layout of the sums), those of
// sequences.cuh. Generated: HALF.
#include "learn/recurrent/row.cuh"
#include "learn/recurrent/sequences.cuh"

using namespace policy;  // functions.cuh

constexpr int ROWS_AT_ONCE = 64;  // rows of one team
constexpr float EPSILON = 1e-5f;

struct Workspace {};

struct Gains {
  const float* gain;  // (WIDTH)
  const float* bias;  // (WIDTH)
};
// Arguments of a forward pass for acting.
struct Rows {
  int rows;
  const Entry* in;  // (rows, STRIDE): results of a product
  Entry* out;       // (rows, STRIDE): activations
  Gains of;
};
// Arguments of the passes over a minibatch.
struct Norm {
  Learn learn;
  const Entry* in;  // rows (STRIDE)
  Entry* out;       // rows (STRIDE)
  Entry* by_out;    // rows (STRIDE): gradients w.r.t. `out`, then by `in`
  float* moments;   // rows (2): mean, reciprocal standard deviation
  Gains of;
  float* partials;  // (pieces, TOTAL_FLOATS), from this layer's part on
};

struct RowMoments { float mean, scale; };

DEVICE RowMoments normalise(const Entry* in, Entry* out, const Gains& of) {
  float sum = 0.0f, squares = 0.0f;
  for (int n = 0; n < WIDTH; ++n) sum += number(in[n]);
  const float mean = sum / (float)WIDTH;
  for (int n = 0; n < WIDTH; ++n) {
    const float apart = number(in[n]) - mean;
    squares = math::fma(apart, apart, squares);
  }
  const float scale = 1.0f / math::sqrt(squares / (float)WIDTH + EPSILON);
  for (int n = 0; n < WIDTH; ++n) {
    put(out[n], activation<RELU>(math::fma((number(in[n]) - mean) * scale, of.gain[n], of.bias[n])));
  }
  return {mean, scale};
}

DEVICE void act_tile(const Rows& call, const Team team, const int e) {
  const int first = e * ROWS_AT_ONCE, left = call.rows - first;
  for (int m : team.each(left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE)) {
    const size_type at = (size_type)(first + m) * STRIDE;
    normalise(call.in + at, call.out + at, call.of);
  }
}

DEVICE int tiles_of_block(const Learn& call) { return (steps_of(call) * most_sequences(call) + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE; }

// Call visit(row) for the rows of a block that this team computes.
template <class Visit> DEVICE void each_row(const Learn& call, const Team team, const int e, Visit visit) {
  if (*call.skip > 0.0f) return;
  const Sequences of(call, e / tiles_of_block(call));
  const int first = e % tiles_of_block(call) * ROWS_AT_ONCE, left = of.rows() - first;
  for (int m : team.each(left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE)) visit(of.row(first + m));
}
DEVICE void forward_tile(const Norm& call, const Team team, const int e) {
  each_row(call.learn, team, e, [&](size_type row) INLINED {
    const RowMoments found = normalise(call.in + row * STRIDE, call.out + row * STRIDE, call.of);
    call.moments[2 * row] = found.mean;
    call.moments[2 * row + 1] = found.scale;
  });
}

// Gradient w.r.t. gain[n] y + bias[n] of a row.
DEVICE float by_scaled(const Norm& call, const size_type row, const int n) {
  const size_type at = row * STRIDE + n;
  return number(call.by_out[at]) * activation_gradient<RELU>(number(call.out[at]));
}
DEVICE float normalised(const Norm& call, const size_type row, const int n) {
  return (number(call.in[row * STRIDE + n]) - call.moments[2 * row]) * call.moments[2 * row + 1];
}

// Replace gradients w.r.t. `out` by those w.r.t. `in`.
DEVICE void backward_tile(const Norm& call, const Team team, const int e) {
  each_row(call.learn, team, e, [&](size_type row) INLINED {
    // Means of the gradient, and of its product with the normalised row.
    float sum = 0.0f, with = 0.0f;
    for (int n = 0; n < WIDTH; ++n) {
      const float slope = by_scaled(call, row, n) * call.of.gain[n];
      sum += slope;
      with = math::fma(slope, normalised(call, row, n), with);
    }
    sum /= (float)WIDTH;
    with /= (float)WIDTH;
    for (int n = 0; n < WIDTH; ++n) {
      const float slope = by_scaled(call, row, n) * call.of.gain[n];
      put(call.by_out[row * STRIDE + n], call.moments[2 * row + 1] * (slope - sum - normalised(call, row, n) * with));
    }
  });
}

// Add up the gradients w.r.t. gains and biases over the blocks of piece `piece`. Runs before `backwards`, which replaces the
// gradients w.r.t. `out`.
DEVICE void learn_piece(const Norm& call, const Team team, const int piece) {
  const Learn& learn = call.learn;
  if (*learn.skip > 0.0f) return;
  float* const sums = call.partials + (size_type)piece * TOTAL_FLOATS;
  // Each thread takes columns, and adds rows in order: rows of a block, blocks of a part, parts.
  for (int n : team.each(WIDTH)) {
    float gains = 0.0f, biases = 0.0f;
    each_part(learn, piece, [&](const int begin, const int end) INLINED {
      float part_gains = 0.0f, part_biases = 0.0f;
      for (int b = begin; b < end; ++b) {
        const Sequences of(learn, b);
        float gain = 0.0f, bias = 0.0f;
        for (int r = 0; r < of.rows(); ++r) {
          const size_type row = of.row(r);
          const float slope = by_scaled(call, row, n);
          gain = math::fma(slope, normalised(call, row, n), gain);
          bias += slope;
        }
        part_gains += gain;
        part_biases += bias;
      }
      gains += part_gains;
      biases += part_biases;
    });
    sums[n * GAIN_STRIDE] = gains;
    sums[BIASES_AT + n] = biases;
  }
}

#include "drive/launch.cuh"
KERNEL(act_rows, Rows, (call.rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, act_tile(call, team, e))
KERNEL(forward_sequences, Norm, call.learn.blocks * tiles_of_block(call.learn), forward_tile(call, team, e))
KERNEL(gradient, Norm, call.learn.pieces, learn_piece(call, team, e))
KERNEL(backwards, Norm, call.learn.blocks * tiles_of_block(call.learn), backward_tile(call, team, e))
