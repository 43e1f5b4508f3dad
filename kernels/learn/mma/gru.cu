// gru.cu -- A GRU layer over whole sequences on tensor cores, forward and backward. A team takes ROWS sequences through all steps.
//
// The hidden state stays in registers in float32. Its bfloat16 copy in shared memory is the A operand of the next step's product.
// Rows are those of nn.py, time first: row t * count + s. The gates are in the order reset, update, new, as in torch.nn.GRUCell.
// Source: Cho et al. 2014, in PyTorch's form.
//
// Constants: SIZE, a multiple of 16, at most 128.
// call: kernel arguments (drive/launch.cuh).
#define APPROXIMATE 1
#include "learn/mma/register_product.cuh"
#include "learn/functions.cuh"

struct Sequences {
  int count, steps, stride;  // stride: distance from one sequence's state to the next
  int teams;                 // number of teams that divide the sequences, ROWS at a time
  const float* weight;        // (3 SIZE, SIZE): weights of the hidden state
  const float* bias_input;    // (3 SIZE)
  const float* bias_state;    // (3 SIZE)
  const u8* start;            // (steps * count): not 0 where an episode begins, or null
  bf16* gates;                // (steps * count, 3 SIZE): products of the inputs. The forward pass overwrites reset and
                              // update with the pre-activations
  bf16* inner;                // (steps * count, SIZE): factor of the reset gate. Null if no backward pass follows
  bf16* before;               // (steps * count, SIZE): hidden state before each step, or null

  DEVICE bool has(const int sequence) const { return sequence < count; }
  DEVICE size_type row(const int t, const int sequence) const { return (size_type)t * count + sequence; }
  DEVICE bool begins(const size_type row) const { return start != nullptr && start[row] != 0; }
};
struct Forward {
  Sequences of;
  const float* state;  // (count, stride): hidden state before the first step
  bf16* out;           // (steps * count, SIZE)
  float* next;         // (count, stride): hidden state after the last step, or null
};
struct Backward {
  Sequences of;
  const bf16* d_out;    // (steps * count, SIZE)
  const float* d_next;  // (count, stride), or null for zeros
  bf16* d_gates;        // (steps * count, 3 SIZE)
  bf16* d_inner;        // (steps * count, SIZE)
  float* d_bias;        // (teams, BIAS_SUMS, 4 SIZE): of the gates, then of `inner`, as BIAS_SUMS partial sums
  float* d_state;       // (count, stride), or null
};
constexpr int BIAS_SUMS = 8;

struct alignas(16) Four32 { float of[4]; };
struct Workspace {
  alignas(16) bf16 left[2][ROWS * (3 * SIZE + SKEW)];  // double buffer: one is read while the next step's is written
  Four32 bias[4][SIZE / 4];                            // of reset, update, new and `inner`

  DEVICE void load_biases(const Team team, const Sequences& of) {
    for (int i : team.each(SIZE)) {
      bias[0][i / 4].of[i % 4] = of.bias_input[i] + of.bias_state[i];
      bias[1][i / 4].of[i % 4] = of.bias_input[SIZE + i] + of.bias_state[SIZE + i];
      bias[2][i / 4].of[i % 4] = of.bias_input[2 * SIZE + i];
      bias[3][i / 4].of[i % 4] = of.bias_state[2 * SIZE + i];
    }
  }
};

// Inputs of a step that a thread prefetches.
struct Inputs {
  Four gate[3][QUADS];
  bool begins[QUADS];

  DEVICE void load(const Sequences& of, const Team team, const int t, const int first) {
    each_quad(team, [&](const Quad quad) INLINED {
      const int k = quad.number;
      begins[k] = false;
      UNROLL for (int part = 0; part < 3; ++part) gate[part][k] = {0u, 0u};
      if (!of.has(first + quad.row)) return;
      const size_type row = of.row(t, first + quad.row);
      begins[k] = of.begins(row);
      UNROLL for (int part = 0; part < 3; ++part) gate[part][k] = four_at(of.gates + row * 3 * SIZE + part * SIZE + quad.unit);
    });
  }
};

// Take ROWS sequences, from `first` on, through all steps.
DEVICE void scan_rows(const Forward& call, const Team team, Workspace& work, RegisterProduct<3, SIZE>& product, const int first) {
  const Sequences& of = call.of;
  // Prefetch the inputs of the first step.
  Inputs now;
  now.load(of, team, 0, first);
  float state[QUADS][4];
  // Write the state to shared memory for step t. It is 0 where an episode begins.
  const auto store_state = [&](const int t, const Inputs& inputs) INLINED {
    const Matrix<SIZE> left{work.left[t % 2]};
    each_quad(team, [&](const Quad quad) INLINED {
      float(&h)[4] = state[quad.number];
      UNROLL for (int j = 0; j < 4; ++j) h[j] = inputs.begins[quad.number] ? 0.0f : h[j];
      const Four rounded = four(h);
      four_at(left.row(quad.row) + quad.unit) = rounded;
      if (of.before != nullptr && of.has(first + quad.row)) four_at(of.before + of.row(t, first + quad.row) * SIZE + quad.unit) = rounded;
    });
  };
  // Load the initial state.
  each_quad(team, [&](const Quad quad) INLINED {
    const int sequence = first + quad.row;
    UNROLL for (int j = 0; j < 4; ++j) {
      state[quad.number][j] = of.has(sequence) ? call.state[(size_type)sequence * of.stride + quad.unit + j] : 0.0f;
    }
  });
  store_state(0, now);
  team.sync();  // `left` and biases are written before they are read
  NO_UNROLL for (int t = 0; t < of.steps; ++t) {
    // Prefetch the inputs of the next step during this step's product.
    Inputs next;
    // mutant(swap t + 1, dropped condition): numbers beyond the last step are not used
    if (t + 1 < of.steps) next.load(of, team, t + 1, first);
    product.multiply(team, Matrix<SIZE>{work.left[t % 2]});
    // Epilogue: gates, new state and stores.
    each_quad(team, [&](const Quad quad) INLINED {
      const int k = quad.number;
      Four32 bias[4];
      UNROLL for (int part = 0; part < 4; ++part) bias[part] = work.bias[part][quad.unit / 4];
      float reset[4], update[4], inner[4];
      UNROLL for (int j = 0; j < 4; ++j) {
        reset[j] = now.gate[0][k][j] + product.at(0, quad, j) + bias[0].of[j];
        update[j] = now.gate[1][k][j] + product.at(1, quad, j) + bias[1].of[j];
        inner[j] = product.at(2, quad, j) + bias[3].of[j];
        const float candidate_at = math::fma(policy::sigmoid(reset[j]), inner[j], now.gate[2][k][j] + bias[2].of[j]);
        const float candidate = policy::hyperbolic_tangent(candidate_at);
        state[k][j] = math::fma(policy::sigmoid(update[j]), state[k][j] - candidate, candidate);
      }
      // Store the output and, for the backward pass, the pre-activations.
      if (!of.has(first + quad.row)) return;
      const size_type row = of.row(t, first + quad.row);
      if (of.inner != nullptr) {
        four_at(of.gates + row * 3 * SIZE + quad.unit) = four(reset);
        four_at(of.gates + row * 3 * SIZE + SIZE + quad.unit) = four(update);
        four_at(of.inner + row * SIZE + quad.unit) = four(inner);
      }
      four_at(call.out + row * SIZE + quad.unit) = four(state[k]);
    });
    if (t + 1 < of.steps) store_state(t + 1, next);
    now = next;
    team.sync();  // the next `left` is written before it is read, and this one is read before it is overwritten
  }
  // Store the final state.
  each_quad(team, [&](const Quad quad) INLINED {
    const int sequence = first + quad.row;
    if (!of.has(sequence) || call.next == nullptr) return;
    UNROLL for (int j = 0; j < 4; ++j) call.next[(size_type)sequence * of.stride + quad.unit + j] = state[quad.number][j];
  });
}

DEVICE void scan_forward(const Forward& call, const Team team, Workspace& work, const int e) {
  const Sequences& of = call.of;
  RegisterProduct<3, SIZE> product;
  product.load(team, [&](int part, int unit, int k) INLINED { return of.weight[(part * SIZE + unit) * SIZE + k]; });
  work.load_biases(team, of);
  NO_UNROLL for (int first = e * ROWS; first < of.count; first += of.teams * ROWS) scan_rows(call, team, work, product, first);
}

// Inputs of a backward step that a thread prefetches.
struct BackwardInputs {
  Inputs inputs;
  Four inner[QUADS], before[QUADS], d_out[QUADS];

  DEVICE void load(const Backward& call, const Team team, const int t, const int first) {
    inputs.load(call.of, team, t, first);
    each_quad(team, [&](const Quad quad) INLINED {
      const int k = quad.number;
      inner[k] = before[k] = d_out[k] = {0u, 0u};
      if (!call.of.has(first + quad.row)) return;
      const size_type at = call.of.row(t, first + quad.row) * SIZE + quad.unit;
      inner[k] = four_at(call.of.inner + at);
      before[k] = four_at(call.of.before + at);
      d_out[k] = four_at(call.d_out + at);
    });
  }
};

DEVICE void scan_backward(const Backward& call, const Team team, Workspace& work, const int e) {
  const Sequences& of = call.of;
  const int first = e * ROWS;
  RegisterProduct<1, 3 * SIZE> product;
  product.load(team, [&](int, int unit, int k) INLINED { return of.weight[k * SIZE + unit]; });
  work.load_biases(team, of);
  // Prefetch the inputs of the last step.
  BackwardInputs now;
  now.load(call, team, of.steps - 1, first);
  float d_state[QUADS][4], d_bias[4][COLUMNS][4] = {};
  // Load the gradient w.r.t. the final state.
  each_quad(team, [&](const Quad quad) INLINED {
    const int sequence = first + quad.row;
    UNROLL for (int j = 0; j < 4; ++j) {
      const bool given = of.has(sequence) && call.d_next != nullptr;
      d_state[quad.number][j] = given ? call.d_next[(size_type)sequence * of.stride + quad.unit + j] : 0.0f;
    }
  });
  team.sync();  // biases are written before they are read
  NO_UNROLL for (int t = of.steps - 1; t >= 0; --t) {
    const Matrix<3 * SIZE> left{work.left[t % 2]};
    bool begins[QUADS];
    // Recompute the gates, and differentiate by their pre-activations.
    each_quad(team, [&](const Quad quad) INLINED {
      const int k = quad.number;
      const Four32 bias = work.bias[2][quad.unit / 4];
      float d_reset[4], d_update[4], d_new[4], d_inner[4];
      // Gradients w.r.t. the pre-activations, the previous state and the biases.
      UNROLL for (int j = 0; j < 4; ++j) {
        const float reset = policy::sigmoid(now.inputs.gate[0][k][j]), update = policy::sigmoid(now.inputs.gate[1][k][j]);
        const float inner = now.inner[k][j], before = now.before[k][j];
        const float candidate = policy::hyperbolic_tangent(math::fma(reset, inner, now.inputs.gate[2][k][j] + bias.of[j]));
        const float d = d_state[k][j] + now.d_out[k][j], rest = d - d * update;
        d_new[j] = rest * math::fma(-candidate, candidate, 1.0f);
        d_inner[j] = d_new[j] * reset;
        d_reset[j] = d_inner[j] * inner * (1.0f - reset);
        d_update[j] = rest * update * (before - candidate);
        d_state[k][j] = d * update;
        d_bias[0][quad.column][j] += d_reset[j];
        d_bias[1][quad.column][j] += d_update[j];
        d_bias[2][quad.column][j] += d_new[j];
        d_bias[3][quad.column][j] += d_inner[j];
      }
      begins[k] = now.inputs.begins[k];
      // Store them for the product with the weights, and for the weight gradients.
      bf16* const row = left.row(quad.row) + quad.unit;
      four_at(row) = four(d_reset);
      four_at(row + SIZE) = four(d_update);
      four_at(row + 2 * SIZE) = four(d_inner);
      if (!of.has(first + quad.row)) return;
      const size_type at = of.row(t, first + quad.row);
      bf16* const d_gates = call.d_gates + at * 3 * SIZE + quad.unit;
      four_at(d_gates) = four(d_reset);
      four_at(d_gates + SIZE) = four(d_update);
      four_at(d_gates + 2 * SIZE) = four(d_new);
      four_at(call.d_inner + at * SIZE + quad.unit) = four(d_inner);
    });
    if (t > 0) now.load(call, team, t - 1, first);  // mutant(swap >): numbers before the first step are not used
    team.sync();  // `left` is written before it is read, and the other buffer is read before it is overwritten
    product.multiply(team, left);
    // Gradient w.r.t. the state before this step.
    each_quad(team, [&](const Quad quad) INLINED {
      const int k = quad.number;
      UNROLL for (int j = 0; j < 4; ++j) d_state[k][j] = begins[k] ? 0.0f : d_state[k][j] + product.at(0, quad, j);
    });
  }
  // Store the gradients w.r.t. the initial state and the biases.
  each_quad(team, [&](const Quad quad) INLINED {
    const int sequence = first + quad.row;
    if (of.has(sequence) && call.d_state != nullptr) {
      UNROLL for (int j = 0; j < 4; ++j) call.d_state[(size_type)sequence * of.stride + quad.unit + j] = d_state[quad.number][j];
    }
    if (quad.number != quad.column) return;  // each thread stores the sums of its units once
    float* const sums = call.d_bias + ((size_type)e * BIAS_SUMS + bias_sum_of(team)) * 4 * SIZE + quad.unit;
    UNROLL for (int part = 0; part < 4; ++part) {
      UNROLL for (int j = 0; j < 4; ++j) sums[part * SIZE + j] = d_bias[part][quad.column][j];
    }
  });
}

#include "drive/launch.cuh"
KERNEL(forward, Forward, call.of.teams, scan_forward(call, team, *work, e))
KERNEL(backward, Backward, (call.of.count + ROWS - 1) / ROWS, scan_backward(call, team, *work, e))
