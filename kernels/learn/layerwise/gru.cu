// gru.cu -- A GRU layer over whole sequences in exact float32, forward and backward. A team takes TILE sequences through all steps.
//
// Rows are those of nn.py, time first: row t * count + s. The gates are in the order reset, update, new, as in torch.nn.GRUCell.
// Source: Cho et al. 2014, in PyTorch's form. With x the products of the inputs and g those of the state h:
//   r = sigmoid(x_r + g_r), z = sigmoid(x_z + g_z), n = tanh(x_n + r g_n), h' = n + z (h - n).
// The state is 0 where an episode starts, and no gradient passes there.
// Constants: those of layers.cuh for one layer (SIZE -> 3 SIZE), TILE.
// call: kernel arguments (drive/launch.cuh).
#include "learn/exact/multiply.cuh"
#include "learn/layers.cuh"
#include "learn/layerwise/cells.cuh"

constexpr int SIZE = OBS, SIZE_PAD = padded(SIZE), GATES_PAD = padded(3 * SIZE);

struct Workspace {
  alignas(16) float state[TILE * SIZE_PAD];   // h, in the backward pass the gradient w.r.t. it
  alignas(16) float gates[TILE * GATES_PAD];  // g, in the backward pass the gradient w.r.t. it
};

struct Sequences {
  int count, steps, stride;  // stride: distance from one sequence's state to the next
  const float* weights;      // packed weights (layers.cuh): those for forward passes, or those for backward passes
  const u8* start;           // (steps * count): not 0 where an episode starts, or null
  float* gates;              // (steps * count, GATES_PAD): x, which the forward pass replaces by r, z, n
  float* inner;              // (steps * count, SIZE_PAD): g_n
  float* before;             // (steps * count, SIZE_PAD): h
};
struct Forward {
  Sequences of;
  const float* state;  // (count, stride): state before the first step
  float* out;          // (steps * count, SIZE_PAD): h'
  float* next;         // (count, stride): state after the last step, or null
};
struct Backward {
  Sequences of;
  const float* d_out;   // (steps * count, SIZE_PAD)
  const float* d_next;  // (count, stride), or null for zeros
  float* d_gates;       // (steps * count, GATES_PAD): gradients w.r.t. x
  float* d_products;    // (steps * count, GATES_PAD): gradients w.r.t. g
  float* d_state;       // (count, stride), or null
};

template <int N> struct Pack { static constexpr int UNITS = N; };

// Sequences of a team. Calls visit(m, u) for unit u of the m-th of TILE sequences, for all units.
struct Own {
  const Sequences& of;
  int first, count;
  DEVICE Own(const Sequences& of, const int e) : of(of), first(e * TILE), count(math::min(of.count - first, TILE)) {}
  template <class Visit> DEVICE void each_unit(const Team team, Visit visit) const {
    each_pack(team, [&](auto pack, int m, int u) INLINED {
      UNROLL for (int j = 0; j < decltype(pack)::UNITS; ++j) visit(m, u + j);
    });
  }
  // Call visit(Pack, m, u) for units [u, u + Pack::UNITS) at once. A CPU with vectors has many units in a pack.
  template <class Visit> DEVICE void each_pack(const Team team, Visit visit) const {
    if constexpr (TEAM == 1) {
      for (int m = 0; m < count; ++m) {
        int u = 0;
        for (; u + PAD <= SIZE; u += PAD) visit(Pack<PAD>{}, m, u);  // mutant(swap <=): one unit at a time, same bits
        for (; u < SIZE; ++u) visit(Pack<1>{}, m, u);
      }
    } else {
      for (int i : team.each(count * SIZE)) visit(Pack<1>{}, i / SIZE, i % SIZE);
    }
  }
  DEVICE size_type row(const int t, const int m) const { return (size_type)t * of.count + first + m; }
  DEVICE bool starts(const size_type row) const { return of.start != nullptr && of.start[row] != 0; }
};

DEVICE void scan_forward(const Forward& call, const Team team, Workspace& work, const int e) {
  const Own own(call.of, e);
  const Sequences& of = call.of;
  const float* const biases = of.weights + SIZE * GATES_PAD;
  // Load the initial state.
  own.each_unit(team, [&](int m, int u) INLINED {
    work.state[m * SIZE_PAD + u] = call.state[(size_type)(own.first + m) * of.stride + u];
  });
  for (int t = 0; t < of.steps; ++t) {
    // Reset the state where an episode starts, and store it for the backward pass.
    own.each_unit(team, [&](int m, int u) INLINED {
      const size_type row = own.row(t, m);
      float& state = work.state[m * SIZE_PAD + u];
      if (own.starts(row)) state = 0.0f;
      if (of.before != nullptr) of.before[row * SIZE_PAD + u] = state;
    });
    team.sync();  // states are written before the product reads them
    multiply<TILE, 3 * SIZE, TEAM>(
        team, own.count, SIZE, Entries<false>{work.state, SIZE_PAD}, of.weights, GATES_PAD,
        [&](int, int n, auto& some) INLINED { some.load(biases + n); },
        [&](int m, int n, auto& some) INLINED { some.store(work.gates + m * GATES_PAD + n); });
    team.sync();  // products are written before the gates read them
    // Gates and new state.
    own.each_pack(team, [&](auto pack, int m, int u) INLINED {
      constexpr int N = decltype(pack)::UNITS;
      const size_type row = own.row(t, m);
      float* const x = of.gates + row * GATES_PAD + u;
      const float* const g = work.gates + m * GATES_PAD + u;
      float* const state = work.state + m * SIZE_PAD + u;
      float reset[N], update[N], inner[N], candidate[N], after[N];
      // Pre-activations.
      UNROLL for (int j = 0; j < N; ++j) {
        reset[j] = x[j] + g[j];
        update[j] = x[SIZE + j] + g[SIZE + j];
        inner[j] = g[2 * SIZE + j];
        candidate[j] = x[2 * SIZE + j];
        after[j] = state[j];
      }
      // Gates.
      UNROLL for (int j = 0; j < N; ++j) {
        const GruUnit cell(reset[j], update[j], inner[j], candidate[j], after[j]);
        reset[j] = cell.reset;
        update[j] = cell.update;
        candidate[j] = cell.candidate;
        after[j] = cell.after;
      }
      // Store the gates for the backward pass, and the new state.
      if (of.inner != nullptr) {
        UNROLL for (int j = 0; j < N; ++j) {
          x[j] = reset[j];
          x[SIZE + j] = update[j];
          x[2 * SIZE + j] = candidate[j];
          of.inner[row * SIZE_PAD + u + j] = inner[j];
        }
      }
      UNROLL for (int j = 0; j < N; ++j) call.out[row * SIZE_PAD + u + j] = state[j] = after[j];
    });
  }
  // Store the final state.
  if (call.next == nullptr) return;
  own.each_unit(team, [&](int m, int u) INLINED {
    call.next[(size_type)(own.first + m) * of.stride + u] = work.state[m * SIZE_PAD + u];
  });
}

DEVICE void scan_backward(const Backward& call, const Team team, Workspace& work, const int e) {
  const Own own(call.of, e);
  const Sequences& of = call.of;
  // Load the gradient w.r.t. the final state.
  own.each_unit(team, [&](int m, int u) INLINED {
    work.state[m * SIZE_PAD + u] = call.d_next == nullptr ? 0.0f : call.d_next[(size_type)(own.first + m) * of.stride + u];
  });
  for (int t = of.steps - 1; t >= 0; --t) {
    // Gradients w.r.t. the gates.
    own.each_pack(team, [&](auto pack, int m, int u) INLINED {
      constexpr int N = decltype(pack)::UNITS;
      const size_type row = own.row(t, m), at = row * SIZE_PAD + u, gate = row * GATES_PAD + u;
      float* const state = work.state + m * SIZE_PAD + u;
      float gate_grad[3][N], candidate_grad[N], rest[N];
      UNROLL for (int j = 0; j < N; ++j) {
        const float reset = of.gates[gate + j], update = of.gates[gate + SIZE + j], candidate = of.gates[gate + 2 * SIZE + j];
        const float grad = call.d_out[at + j] + state[j];
        candidate_grad[j] = grad * (1.0f - update) * (1.0f - candidate * candidate);
        gate_grad[0][j] = candidate_grad[j] * of.inner[at + j] * (reset * (1.0f - reset));
        gate_grad[1][j] = grad * (of.before[at + j] - candidate) * (update * (1.0f - update));
        gate_grad[2][j] = candidate_grad[j] * reset;
        rest[j] = grad * update;
      }
      UNROLL for (int k = 0; k < 3; ++k) {
        UNROLL for (int j = 0; j < N; ++j) {
          call.d_gates[gate + k * SIZE + j] = k == 2 ? candidate_grad[j] : gate_grad[k][j];
          work.gates[m * GATES_PAD + k * SIZE + u + j] = call.d_products[gate + k * SIZE + j] = gate_grad[k][j];
        }
      }
      UNROLL for (int j = 0; j < N; ++j) state[j] = rest[j];
    });
    team.sync();  // gradients w.r.t. g are written before the product reads them
    // Gradient w.r.t. the state before this step.
    multiply<TILE, SIZE, TEAM>(
        team, own.count, 3 * SIZE, Entries<false>{work.gates, GATES_PAD}, of.weights, SIZE_PAD,
        [&](int m, int n, auto& some) INLINED { some.load(work.state + m * SIZE_PAD + n); },
        [&](int m, int n, auto& some) INLINED { some.store(work.state + m * SIZE_PAD + n); });
    team.sync();  // gradients w.r.t. the state are written before they are read
    own.each_unit(team, [&](int m, int u) INLINED {
      if (own.starts(own.row(t, m))) work.state[m * SIZE_PAD + u] = 0.0f;
    });
  }
  if (call.d_state == nullptr) return;
  own.each_unit(team, [&](int m, int u) INLINED {
    call.d_state[(size_type)(own.first + m) * of.stride + u] = work.state[m * SIZE_PAD + u];
  });
}

#include "drive/launch.cuh"
KERNEL(forward, Forward, (call.of.count + TILE - 1) / TILE, scan_forward(call, team, *work, e))
KERNEL(backward, Backward, (call.of.count + TILE - 1) / TILE, scan_backward(call, team, *work, e))
