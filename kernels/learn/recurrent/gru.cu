// gru.cu -- gated recurrent units in exact float32: steps while acting, whole sequences while learning, and the way back.
//
// Source: Cho et al. 2014, in PyTorch's form: with x the input gates' products and g those of the state h,
//   r = sigmoid(x_r + g_r), z = sigmoid(x_z + g_z), n = tanh(x_n + r g_n), h' = n + z (h - n).
// The state is 0 where an episode starts, and no derivative passes there.
// Constants: those of layers.cuh, of one layer (UNITS -> 3 UNITS); TILE (sequences at once); those of sequences.cuh; STATE (numbers
// of an agent's whole state), STATE_AT (where this tower's begin).
#include "learn/exact/multiply.cuh"
#include "learn/layers.cuh"
#include "learn/recurrent/sequences.cuh"

constexpr int UNITS = OBS, UNITS_PAD = padded(UNITS), GATES = 3 * UNITS, GATES_PAD = padded(GATES);

struct Workspace {
  alignas(16) float state[TILE * UNITS_PAD];  // h; on the way back the derivatives by it
  alignas(16) float gates[TILE * GATES_PAD];  // g; on the way back the derivatives by it
};

// One step of all agents.
struct Steps {
  int rows;
  const float* in;       // (rows, GATES_PAD)
  const float* before;   // (rows, STATE)
  const u8* start;       // (rows) or null: nowhere
  const float* weights;  // forward copies
  float* after;          // (rows, STATE) or null: nobody needs it
  float* out;            // (rows, UNITS_PAD)
};
struct Scan {
  Learn learn;
  float* in;               // slots of rows (GATES_PAD): x, then r, z, n, then derivatives by x
  float* gates;            // slots of rows (GATES_PAD): g_n in its place, then derivatives by g
  float* before;           // slots of rows (UNITS_PAD): h
  float* out;              // slots of rows (UNITS_PAD): h'
  const float* by_out;     // slots of rows (UNITS_PAD): derivatives by h'
  const float* weights;    // forward copies
  const float* backwards;  // backward copies
  const u8* start;         // rows: 1 where an episode starts
  const float* first;      // (sequences, STATE): before step 0
};

DEVICE float sigmoid(const float x) { return quotient(1.0f, 1.0f + exponential(-x)); }

// What the gates make of a state.
struct Cell {
  float reset, update, fresh, after;
  DEVICE Cell(const float* x, const float* g, const float before) {
    reset = sigmoid(x[0] + g[0]);
    update = sigmoid(x[UNITS] + g[UNITS]);
    fresh = hyperbolic_tangent(math::fma(reset, g[2 * UNITS], x[2 * UNITS]));
    after = math::fma(update, before - fresh, fresh);
  }
};

// g of `rows` states.
DEVICE void multiply_states(const Team team, Workspace& work, const int rows, const float* weights) {
  const float* const biases = weights + UNITS * GATES_PAD;
  multiply<TILE, GATES, TEAM>(
      team, rows, UNITS, Entries<false>{work.state, UNITS_PAD}, weights, GATES_PAD,
      [&](int, int n, auto& some) INLINED { some.load(biases + n); },
      [&](int m, int n, auto& some) INLINED { some.store(work.gates + m * GATES_PAD + n); });
}
// visit(m, u) for all units of `rows` rows.
template <class Visit> DEVICE void each_unit(const Team team, const int rows, Visit visit) {
  for (int i : team.each(rows * UNITS)) visit(i / UNITS, i % UNITS);
}

DEVICE void act_tile(const Steps& call, const Team team, Workspace& work, const int e) {
  const int first = e * TILE, left = call.rows - first, rows = left < TILE ? left : TILE;
  each_unit(team, rows, [&](int m, int u) INLINED {
    const size_type row = first + m;
    const bool starts = call.start != nullptr && call.start[row];
    work.state[m * UNITS_PAD + u] = starts ? 0.0f : call.before[row * STATE + STATE_AT + u];
  });
  team.sync();
  multiply_states(team, work, rows, call.weights);
  team.sync();
  each_unit(team, rows, [&](int m, int u) INLINED {
    const size_type row = first + m;
    const Cell cell(call.in + row * GATES_PAD + u, work.gates + m * GATES_PAD + u, work.state[m * UNITS_PAD + u]);
    if (call.after != nullptr) call.after[row * STATE + STATE_AT + u] = cell.after;
    call.out[row * UNITS_PAD + u] = cell.after;
  });
}

DEVICE int tiles_of_block(const Learn& call) { return (most_sequences(call) + TILE - 1) / TILE; }

// Sequences of one block that a team scans together.
struct Share {
  Sequences of;
  int from, count;
  DEVICE Share(const Learn& call, const int e) : of(call, e / tiles_of_block(call)), from(e % tiles_of_block(call) * TILE) {
    const int left = of.count - from;
    count = left < TILE ? left : TILE;
  }
  // Row of step t of the m-th of them.
  DEVICE size_type row(const int t, const int m) const { return of.row(t, from + m); }
};

DEVICE void scan(const Scan& call, const Team team, Workspace& work, const int e) {
  const Share own(call.learn, e);
  if (own.count <= 0 || *call.learn.skip > 0.0f) return;
  each_unit(team, own.count, [&](int m, int u) INLINED {
    work.state[m * UNITS_PAD + u] = call.first[(size_type)(own.of.first + own.from + m) * STATE + STATE_AT + u];
  });
  for (int t = 0; t < call.learn.steps; ++t) {
    each_unit(team, own.count, [&](int m, int u) INLINED {
      const size_type row = own.row(t, m);
      float& state = work.state[m * UNITS_PAD + u];
      if (call.start[row]) state = 0.0f;
      call.before[row * UNITS_PAD + u] = state;
    });
    team.sync();
    multiply_states(team, work, own.count, call.weights);
    team.sync();
    each_unit(team, own.count, [&](int m, int u) INLINED {
      const size_type row = own.row(t, m);
      float* const x = call.in + row * GATES_PAD + u;
      const float* const g = work.gates + m * GATES_PAD + u;
      float& state = work.state[m * UNITS_PAD + u];
      const Cell cell(x, g, state);
      x[0] = cell.reset;
      x[UNITS] = cell.update;
      x[2 * UNITS] = cell.fresh;
      call.gates[row * GATES_PAD + 2 * UNITS + u] = g[2 * UNITS];
      call.out[row * UNITS_PAD + u] = state = cell.after;
    });
  }
}

DEVICE void scan_back(const Scan& call, const Team team, Workspace& work, const int e) {
  const Share own(call.learn, e);
  if (own.count <= 0 || *call.learn.skip > 0.0f) return;
  each_unit(team, own.count, [&](int m, int u) INLINED { work.state[m * UNITS_PAD + u] = 0.0f; });
  for (int t = call.learn.steps - 1; t >= 0; --t) {
    each_unit(team, own.count, [&](int m, int u) INLINED {
      const size_type row = own.row(t, m);
      float* const x = call.in + row * GATES_PAD + u;
      float* const g = call.gates + row * GATES_PAD + u;
      float& state = work.state[m * UNITS_PAD + u];
      const float reset = x[0], update = x[UNITS], fresh = x[2 * UNITS];
      const float slope = call.by_out[row * UNITS_PAD + u] + state;
      const float by_fresh = slope * (1.0f - update) * (1.0f - fresh * fresh);
      const float by_reset = by_fresh * g[2 * UNITS] * (reset * (1.0f - reset));
      const float by_update = slope * (call.before[row * UNITS_PAD + u] - fresh) * (update * (1.0f - update));
      const float by_g[3] = {by_reset, by_update, by_fresh * reset};
      UNROLL for (int k = 0; k < 3; ++k) {
        x[k * UNITS] = k == 2 ? by_fresh : by_g[k];
        work.gates[m * GATES_PAD + k * UNITS + u] = g[k * UNITS] = by_g[k];
      }
      state = slope * update;
    });
    team.sync();
    multiply<TILE, UNITS, TEAM>(
        team, own.count, GATES, Entries<false>{work.gates, GATES_PAD}, call.backwards, UNITS_PAD,
        [&](int m, int n, auto& some) INLINED { some.load(work.state + m * UNITS_PAD + n); },
        [&](int m, int n, auto& some) INLINED { some.store(work.state + m * UNITS_PAD + n); });
    team.sync();
    each_unit(team, own.count, [&](int m, int u) INLINED {
      if (call.start[own.row(t, m)]) work.state[m * UNITS_PAD + u] = 0.0f;
    });
  }
}

#include "drive/launch.cuh"
KERNEL(act, Steps, (call.rows + TILE - 1) / TILE, act_tile(call, team, *work, e))
KERNEL(forwards, Scan, call.learn.blocks * tiles_of_block(call.learn), scan(call, team, *work, e))
KERNEL(backwards, Scan, call.learn.blocks * tiles_of_block(call.learn), scan_back(call, team, *work, e))
