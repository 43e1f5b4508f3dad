// mingru.cu -- minimal gated recurrent units with a highway gate, in exact float32: steps while acting, whole sequences while
// learning, and the way back. Products of matrices are other parts' (part.cu): gates do not see the state.
//
// Source: Feng et al. 2024, "Were RNNs all we needed?", with the highway gate of Srivastava et al. 2015, as PufferLib has them. With
// c, g, p the products of x, z = sigmoid(g) and s = sigmoid(p):
//   new = c + 0.5 if c >= 0 else sigmoid(c), h' = h + z (new - h), out = x + s (h' - x).
// The state is 0 where an episode starts, and no derivative passes there.
// Constants: UNITS; AT_ONCE (units that a team has); those of sequences.cuh; STATE (numbers of an agent's whole state).
#include "learn/exact/lanes.cuh"
#include "learn/functions.cuh"
#include "learn/recurrent/sequences.cuh"

using namespace policy;  // functions.cuh

constexpr int UNITS_PAD = padded(UNITS), GATES_PAD = padded(3 * UNITS);

struct Workspace { float state[AT_ONCE]; };  // h, or derivatives by it, of some units of some sequences

// One step of all agents.
struct Steps {
  int rows, state_at;   // of STATE, where this layer's begin
  const float* x;       // (rows, UNITS_PAD)
  const float* gates;   // (rows, GATES_PAD)
  const float* before;  // (rows, STATE)
  const u8* start;      // (rows) or null: nowhere
  float* after;         // (rows, STATE) or null: nobody needs it
  float* out;           // (rows, UNITS_PAD)
};
struct Scan {
  Learn learn;
  const float* x;       // slots of rows (UNITS_PAD)
  float* gates;         // slots of rows (GATES_PAD): c, g, p, then derivatives by them
  float* states;        // slots of rows (UNITS_PAD): h'
  float* out;           // slots of rows (UNITS_PAD); on the way back derivatives by it
  float* by_x;          // slots of rows (UNITS_PAD): derivatives that pass by the highway
  const u8* start[AGENT_GROUPS];     // (T, N, C)
  const float* first[AGENT_GROUPS];  // (N, C, STATE), from this layer's part on: before step 0
};

DEVICE float sigmoid(const float x) { return quotient(1.0f, 1.0f + exponential(-x)); }

struct Cell {
  float fresh, update, shown, after, out;
  DEVICE Cell(const float x, const float* gates, const float before) {
    const float c = gates[0];
    fresh = c >= 0.0f ? c + 0.5f : sigmoid(c);
    update = sigmoid(gates[UNITS]);
    shown = sigmoid(gates[2 * UNITS]);
    after = math::fma(update, fresh - before, before);
    out = math::fma(shown, after - x, x);
  }
};

DEVICE void act_unit(const Steps& call, const int i) {
  const size_type row = i / UNITS, u = i % UNITS, at = row * STATE + call.state_at + u;
  const bool starts = call.start != nullptr && call.start[row];
  const Cell cell(call.x[row * UNITS_PAD + u], call.gates + row * GATES_PAD + u, starts ? 0.0f : call.before[at]);
  if (call.after != nullptr) call.after[at] = cell.after;
  call.out[row * UNITS_PAD + u] = cell.out;
}
DEVICE void act_units(const Steps& call, const Team team, const int e) {
  const int first = e * AT_ONCE, left = call.rows * UNITS - first;
  for (int i : team.each(left < AT_ONCE ? left : AT_ONCE)) act_unit(call, first + i);
}

DEVICE int shares_of_block(const Learn& call) { return (most_sequences(call) * UNITS + AT_ONCE - 1) / AT_ONCE; }

// Units of one block that a team scans.
struct Share {
  Sequences of;
  int from, count;
  DEVICE Share(const Learn& call, const int e) : of(call, e / shares_of_block(call)), from(e % shares_of_block(call) * AT_ONCE) {
    const int left = of.count * UNITS - from;
    count = left < AT_ONCE ? left : AT_ONCE;
  }
  DEVICE int sequence(const int i) const { return (from + i) / UNITS; }
  DEVICE int unit(const int i) const { return (from + i) % UNITS; }
  DEVICE size_type row(const int t, const int i) const { return of.first + (size_type)t * of.count + sequence(i); }
};

// The state of unit i before step t: what step t - 1 has left, or nothing.
DEVICE float state_before(const Scan& call, const Share& own, const int t, const int i) {
  const Place place = own.of.place(t, own.sequence(i));
  if (call.start[place.group][place.row]) return 0.0f;
  if (t == 0) return call.first[place.group][(size_type)place.row * STATE + own.unit(i)];
  return call.states[own.row(t - 1, i) * UNITS_PAD + own.unit(i)];
}

DEVICE void scan(const Scan& call, const Team team, const int e) {
  const Share own(call.learn, e);
  if (own.count <= 0 || *call.learn.skip > 0.0f) return;
  for (int t = 0; t < call.learn.steps; ++t) {
    for (int i : team.each(own.count)) {
      const size_type row = own.row(t, i), at = row * UNITS_PAD + own.unit(i);
      const Cell cell(call.x[at], call.gates + row * GATES_PAD + own.unit(i), state_before(call, own, t, i));
      call.states[at] = cell.after;
      call.out[at] = cell.out;
    }
  }
}

DEVICE void scan_back(const Scan& call, const Team team, Workspace& work, const int e) {
  const Share own(call.learn, e);
  if (own.count <= 0 || *call.learn.skip > 0.0f) return;
  for (int i : team.each(own.count)) work.state[i] = 0.0f;
  for (int t = call.learn.steps - 1; t >= 0; --t) {
    for (int i : team.each(own.count)) {
      const size_type row = own.row(t, i), at = row * UNITS_PAD + own.unit(i);
      float* const gates = call.gates + row * GATES_PAD + own.unit(i);
      const float x = call.x[at], before = state_before(call, own, t, i), slope = call.out[at];
      const Cell cell(x, gates, before);
      const float by_state = math::fma(slope, cell.shown, work.state[i]), by_fresh = by_state * cell.update;
      call.by_x[at] = slope * (1.0f - cell.shown);
      gates[2 * UNITS] = slope * (cell.after - x) * (cell.shown * (1.0f - cell.shown));
      gates[UNITS] = by_state * (cell.fresh - before) * (cell.update * (1.0f - cell.update));
      gates[0] = gates[0] >= 0.0f ? by_fresh : by_fresh * (cell.fresh * (1.0f - cell.fresh));
      const Place place = own.of.place(t, own.sequence(i));
      work.state[i] = call.start[place.group][place.row] ? 0.0f : by_state * (1.0f - cell.update);
    }
  }
}

#include "drive/launch.cuh"
KERNEL(act, Steps, (call.rows * UNITS + AT_ONCE - 1) / AT_ONCE, act_units(call, team, e))
KERNEL(forwards, Scan, call.learn.blocks * shares_of_block(call.learn), scan(call, team, e))
KERNEL(backwards, Scan, call.learn.blocks * shares_of_block(call.learn), scan_back(call, team, *work, e))
