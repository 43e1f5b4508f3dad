// mingru.cu -- minimal gated recurrent units with a highway gate, of rows in float32 or bfloat16: steps while acting, whole sequences while
// learning, and the way back. Products of matrices are other parts' (part.cu): gates do not see the state.
//
// Source: Feng et al. 2024, "Were RNNs all we needed?", with the highway gate of Srivastava et al. 2015, as PufferLib has them. With
// c, g, p the products of x, z = sigmoid(g) and s = sigmoid(p):
//   new = c + 0.5 if c >= 0 else sigmoid(c), h' = h + z (new - h), out = x + s (h' - x).
// The state is 0 where an episode starts, and no derivative passes there.
// Constants: UNITS; AT_ONCE (units that a team has); HALF; X_STRIDE, GATES_STRIDE (of rows); STATE (numbers
// of an agent's whole state); those of sequences.cuh.
#include "learn/recurrent/row.cuh"
#include "learn/recurrent/sequences.cuh"

using namespace policy;  // functions.cuh

constexpr int UNITS_PAD = padded(UNITS);

struct Workspace { float state[AT_ONCE]; };  // h, or derivatives by it, of some units of some sequences

// One step of all agents.
struct Steps {
  int rows, state_at;   // of STATE, where this layer's begin
  const Entry* x;         // (rows, X_STRIDE)
  const Entry* gates;     // (rows, GATES_STRIDE)
  const float* before;  // (rows, STATE)
  const u8* start;      // (rows) or null: nowhere
  float* after;         // (rows, STATE) or null: nobody needs it
  Entry* out;             // (rows, X_STRIDE)
};
struct Scan {
  Learn learn;
  const Entry* x;         // rows (X_STRIDE)
  Entry* gates;           // rows (GATES_STRIDE): c, g, p, then derivatives by them
  Entry* states;          // rows (UNITS_PAD): h'
  Entry* out;             // rows (X_STRIDE)
  const Entry* by_out;    // rows (UNITS_PAD): derivatives by `out`
  Entry* by_x;            // rows (UNITS_PAD): derivatives by `x` that pass by the highway
  const u8* start;      // rows: 1 where an episode starts
  const float* first;   // (sequences, STATE), from this layer's part on: before step 0
};

DEVICE float sigmoid(const float x) { return quotient(1.0f, 1.0f + exponential(-x)); }

struct Cell {
  float fresh, update, shown, after, out;
  DEVICE Cell(const float x, const Entry* gates, const float before) {
    const float c = number(gates[0]);
    fresh = c >= 0.0f ? c + 0.5f : sigmoid(c);
    update = sigmoid(number(gates[UNITS]));
    shown = sigmoid(number(gates[2 * UNITS]));
    after = math::fma(update, fresh - before, before);
    out = math::fma(shown, after - x, x);
  }
};

DEVICE void act_unit(const Steps& call, const int i) {
  const size_type row = i / UNITS, u = i % UNITS, at = row * STATE + call.state_at + u;
  const bool starts = call.start != nullptr && call.start[row];
  const Cell cell(number(call.x[row * X_STRIDE + u]), call.gates + row * GATES_STRIDE + u, starts ? 0.0f : call.before[at]);
  if (call.after != nullptr) call.after[at] = cell.after;
  put(call.out[row * X_STRIDE + u], cell.out);
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
  DEVICE size_type row(const int t, const int i) const { return of.row(t, sequence(i)); }
  // The state of unit i before the first step.
  DEVICE float first(const Scan& call, const int i) const {
    return call.first[(size_type)(of.first + sequence(i)) * STATE + unit(i)];
  }
};

DEVICE void scan(const Scan& call, const Team team, Workspace& work, const int e) {
  const Share own(call.learn, e);
  if (own.count <= 0 || *call.learn.skip > 0.0f) return;
  for (int i : team.each(own.count)) work.state[i] = own.first(call, i);
  for (int t = 0; t < call.learn.steps; ++t) {
    for (int i : team.each(own.count)) {
      const size_type row = own.row(t, i), u = own.unit(i);
      const float before = call.start[row] ? 0.0f : work.state[i];
      const Cell cell(number(call.x[row * X_STRIDE + u]), call.gates + row * GATES_STRIDE + u, before);
      work.state[i] = cell.after;
      put(call.states[row * UNITS_PAD + u], cell.after);
      put(call.out[row * X_STRIDE + u], cell.out);
    }
  }
}

DEVICE void scan_back(const Scan& call, const Team team, Workspace& work, const int e) {
  const Share own(call.learn, e);
  if (own.count <= 0 || *call.learn.skip > 0.0f) return;
  for (int i : team.each(own.count)) work.state[i] = 0.0f;
  for (int t = call.learn.steps - 1; t >= 0; --t) {
    for (int i : team.each(own.count)) {
      const size_type row = own.row(t, i), u = own.unit(i);
      const bool starts = call.start[row];
      Entry* const gates = call.gates + row * GATES_STRIDE + u;
      const float before = starts ? 0.0f : t == 0 ? own.first(call, i) : number(call.states[own.row(t - 1, i) * UNITS_PAD + u]);
      const float x = number(call.x[row * X_STRIDE + u]), slope = number(call.by_out[row * UNITS_PAD + u]), c = number(gates[0]);
      const Cell cell(x, gates, before);
      const float by_state = math::fma(slope, cell.shown, work.state[i]), by_fresh = by_state * cell.update;
      put(call.by_x[row * UNITS_PAD + u], slope * (1.0f - cell.shown));
      put(gates[2 * UNITS], slope * (cell.after - x) * (cell.shown * (1.0f - cell.shown)));
      put(gates[UNITS], by_state * (cell.fresh - before) * (cell.update * (1.0f - cell.update)));
      put(gates[0], c >= 0.0f ? by_fresh : by_fresh * (cell.fresh * (1.0f - cell.fresh)));
      work.state[i] = starts ? 0.0f : by_state * (1.0f - cell.update);
    }
  }
}

#include "drive/launch.cuh"
KERNEL(act, Steps, (call.rows * UNITS + AT_ONCE - 1) / AT_ONCE, act_units(call, team, e))
KERNEL(forwards, Scan, call.learn.blocks * shares_of_block(call.learn), scan(call, team, *work, e))
KERNEL(backwards, Scan, call.learn.blocks * shares_of_block(call.learn), scan_back(call, team, *work, e))
