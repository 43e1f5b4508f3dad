// gru.cu -- a layer of gated recurrent units over whole sequences in exact float32, forward and backward: a team takes TILE sequences
// through all steps.
//
// Rows are those of nn.py, time first: row t * count + s. Gates stand in the order reset, update, new, as in torch.nn.GRUCell.
// Source: Cho et al. 2014, in PyTorch's form: with x the input gates' products and g those of the state h,
//   r = sigmoid(x_r + g_r), z = sigmoid(x_z + g_z), n = tanh(x_n + r g_n), h' = n + z (h - n).
// The state is 0 where an episode starts, and no derivative passes there.
// Constants: those of layers.cuh, of one layer (SIZE -> 3 SIZE); TILE.
#include "learn/exact/multiply.cuh"
#include "learn/layers.cuh"
#include "learn/recurrent/cells.cuh"

constexpr int SIZE = OBS, SIZE_PAD = padded(SIZE), GATES_PAD = padded(3 * SIZE);

struct Workspace {
  alignas(16) float state[TILE * SIZE_PAD];   // h; on the way back the derivatives by it
  alignas(16) float gates[TILE * GATES_PAD];  // g; on the way back the derivatives by it
};

struct Sequences {
  int count, steps, stride;  // stride: from one sequence's state to the next
  const float* weights;      // forward copies, as layers.cuh has them; on the way back the backward copies
  const u8* start;           // (steps * count), or null: nowhere
  float* gates;              // (steps * count, GATES_PAD): x; forward writes r, z, n in their place
  float* inner;              // (steps * count, SIZE_PAD): g_n
  float* before;             // (steps * count, SIZE_PAD): h
};
struct Forward {
  Sequences of;
  const float* state;  // (count, stride): before the first step
  float* out;          // (steps * count, SIZE_PAD): h'
  float* next;         // (count, stride): after the last step, or null
};
struct Backward {
  Sequences of;
  const float* d_out;  // (steps * count, SIZE_PAD)
  float* d_gates;      // (steps * count, GATES_PAD): derivatives by x
  float* d_products;   // (steps * count, GATES_PAD): derivatives by g
};

// Sequences that a team has: visit(m, u) for all of their units, the m-th of TILE.
struct Own {
  const Sequences& of;
  int first, count;
  DEVICE Own(const Sequences& of, const int e) : of(of), first(e * TILE), count(math::min(of.count - first, TILE)) {}
  template <class Visit> DEVICE void each_unit(const Team team, Visit visit) const {
    for (int i : team.each(count * SIZE)) visit(i / SIZE, i % SIZE);
  }
  DEVICE size_type row(const int t, const int m) const { return (size_type)t * of.count + first + m; }
  DEVICE bool starts(const size_type row) const { return of.start != nullptr && of.start[row] != 0; }
};

DEVICE void scan_forward(const Forward& call, const Team team, Workspace& work, const int e) {
  const Own own(call.of, e);
  const Sequences& of = call.of;
  const float* const biases = of.weights + SIZE * GATES_PAD;
  own.each_unit(team, [&](int m, int u) INLINED {
    work.state[m * SIZE_PAD + u] = call.state[(size_type)(own.first + m) * of.stride + u];
  });
  for (int t = 0; t < of.steps; ++t) {
    own.each_unit(team, [&](int m, int u) INLINED {
      const size_type row = own.row(t, m);
      float& state = work.state[m * SIZE_PAD + u];
      if (own.starts(row)) state = 0.0f;
      if (of.before != nullptr) of.before[row * SIZE_PAD + u] = state;
    });
    team.sync();
    multiply<TILE, 3 * SIZE, TEAM>(
        team, own.count, SIZE, Entries<false>{work.state, SIZE_PAD}, of.weights, GATES_PAD,
        [&](int, int n, auto& some) INLINED { some.load(biases + n); },
        [&](int m, int n, auto& some) INLINED { some.store(work.gates + m * GATES_PAD + n); });
    team.sync();
    own.each_unit(team, [&](int m, int u) INLINED {
      const size_type row = own.row(t, m);
      float* const x = of.gates + row * GATES_PAD + u;
      const float* const g = work.gates + m * GATES_PAD + u;
      float& state = work.state[m * SIZE_PAD + u];
      const GruUnit cell(x[0] + g[0], x[SIZE] + g[SIZE], g[2 * SIZE], x[2 * SIZE], state);
      if (of.inner != nullptr) {
        x[0] = cell.reset;
        x[SIZE] = cell.update;
        x[2 * SIZE] = cell.fresh;
        of.inner[row * SIZE_PAD + u] = g[2 * SIZE];
      }
      call.out[row * SIZE_PAD + u] = state = cell.after;
    });
  }
  if (call.next == nullptr) return;
  own.each_unit(team, [&](int m, int u) INLINED {
    call.next[(size_type)(own.first + m) * of.stride + u] = work.state[m * SIZE_PAD + u];
  });
}

DEVICE void scan_backward(const Backward& call, const Team team, Workspace& work, const int e) {
  const Own own(call.of, e);
  const Sequences& of = call.of;
  own.each_unit(team, [&](int m, int u) INLINED { work.state[m * SIZE_PAD + u] = 0.0f; });
  for (int t = of.steps - 1; t >= 0; --t) {
    own.each_unit(team, [&](int m, int u) INLINED {
      const size_type row = own.row(t, m);
      const float* const gates = of.gates + row * GATES_PAD + u;
      float& state = work.state[m * SIZE_PAD + u];
      const float reset = gates[0], update = gates[SIZE], fresh = gates[2 * SIZE];
      const float slope = call.d_out[row * SIZE_PAD + u] + state;
      const float by_fresh = slope * (1.0f - update) * (1.0f - fresh * fresh);
      const float by_reset = by_fresh * of.inner[row * SIZE_PAD + u] * (reset * (1.0f - reset));
      const float by_update = slope * (of.before[row * SIZE_PAD + u] - fresh) * (update * (1.0f - update));
      const float by_g[3] = {by_reset, by_update, by_fresh * reset};
      UNROLL for (int k = 0; k < 3; ++k) {
        const size_type at = row * GATES_PAD + k * SIZE + u;
        call.d_gates[at] = k == 2 ? by_fresh : by_g[k];
        work.gates[m * GATES_PAD + k * SIZE + u] = call.d_products[at] = by_g[k];
      }
      state = slope * update;
    });
    team.sync();
    multiply<TILE, SIZE, TEAM>(
        team, own.count, 3 * SIZE, Entries<false>{work.gates, GATES_PAD}, of.weights, SIZE_PAD,
        [&](int m, int n, auto& some) INLINED { some.load(work.state + m * SIZE_PAD + n); },
        [&](int m, int n, auto& some) INLINED { some.store(work.state + m * SIZE_PAD + n); });
    team.sync();
    own.each_unit(team, [&](int m, int u) INLINED {
      if (own.starts(own.row(t, m))) work.state[m * SIZE_PAD + u] = 0.0f;
    });
  }
}

#include "drive/launch.cuh"
KERNEL(forward, Forward, (call.of.count + TILE - 1) / TILE, scan_forward(call, team, *work, e))
KERNEL(backward, Backward, (call.of.count + TILE - 1) / TILE, scan_backward(call, team, *work, e))
