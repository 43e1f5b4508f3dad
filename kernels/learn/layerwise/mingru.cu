// mingru.cu -- A minGRU layer over whole sequences, forward and backward. A thread takes UNITS neighboring units of one sequence
// through all steps, and loads AT_ONCE steps together.
//
// Rows, equations and names (candidate, update, highway) are those of nn.py. Time comes first: row t * count + s. The state is
// float32. The backward pass recomputes it from the states that the forward pass has stored every AT_ONCE steps.
// Source: Feng et al. 2024, "Were RNNs all we needed?", and Srivastava et al. 2015 for the highway gate.
//
// Constants: SIZE, UNITS (a power of two that divides it), X_STRIDE, ROWS_STRIDE (lengths of rows). The generated text defines
// APPROXIMATE, 1: rows are bfloat16.
// call: kernel arguments (drive/launch.cuh).
#include "generated/spaces.cuh"
#include "learn/layerwise/cells.cuh"
#include "learn/mma/bfloat.cuh"

#if APPROXIMATE
typedef bf16 row_t;
#else
typedef float row_t;
#endif
constexpr int AT_ONCE = 8, ACROSS = SIZE / UNITS;

struct Workspace {};
struct Sequences {
  int count, steps, stride;  // stride: distance from one sequence's state to the next
  const row_t* rows;   // (steps * count, ROWS_STRIDE): products of the inputs
  const row_t* x;      // (steps * count, X_STRIDE)
  const float* bias;   // (3 SIZE), or null for zeros
  const u8* start;     // (steps * count): not 0 where an episode begins, or null
  float* checkpoints;  // (ceil(steps / AT_ONCE), count, SIZE): states before steps 0, AT_ONCE, ..., or null
};
struct Forward {
  Sequences of;
  const float* state;  // (count, stride): state before the first step
  row_t* out;          // (steps * count, X_STRIDE)
  float* next;         // (count, stride): state after the last step, or null
};
struct Backward {
  Sequences of;
  const row_t* d_out;   // (steps * count, X_STRIDE)
  const float* d_next;  // (count, stride), or null for zeros
  row_t* d_rows;        // (steps * count, ROWS_STRIDE)
  row_t* d_x;           // (steps * count, X_STRIDE): only through the highway gate
  float* d_bias;        // (count, 3 SIZE): of each sequence, or null
  float* d_state;       // (count, stride), or null
};

// UNITS numbers of a row, loaded and stored at once.
constexpr int PACK_BYTES = UNITS * (int)sizeof(row_t);
struct alignas(PACK_BYTES < 16 ? PACK_BYTES : 16) MAY_ALIAS Pack {
  row_t of[UNITS];

  DEVICE float operator[](const int j) const { return as_float(of[j]); }
  static DEVICE float as_float(const float x) { return x; }
  static DEVICE float as_float(const bf16 x) { return math::from_bits((u32)x.bits << 16); }
};
DEVICE void put(float& to, const float x) { to = x; }
DEVICE void put(bf16& to, const float x) { to.bits = (u16)pair(x, 0.0f); }
DEVICE Pack pack_at(const row_t* at) { return *(const Pack*)at; }
DEVICE void store(row_t* at, const float (&x)[UNITS]) {
  Pack all;
  UNROLL for (int j = 0; j < UNITS; ++j) put(all.of[j], x[j]);
  *(Pack*)at = all;
}

// Units of one thread.
struct UnitIndex {
  int sequence, unit;
  DEVICE explicit UnitIndex(const int e) : sequence(e / ACROSS), unit(e % ACROSS * UNITS) {}
  DEVICE size_type outside(const Sequences& of) const { return (size_type)sequence * of.stride + unit; }
  DEVICE size_type in_state() const { return (size_type)sequence * SIZE + unit; }
  DEVICE size_type row(const Sequences& of, const int t) const { return (size_type)t * of.count + sequence; }
};

typedef policy::MinGruUnit Unit;

// Steps [first, first + count) of a thread's units, count <= AT_ONCE. If there are fewer, the last one is repeated.
struct Steps {
  Pack gate[3][AT_ONCE], x[AT_ONCE];
  bool begins[AT_ONCE];
  int count;

  DEVICE void load(const Sequences& of, const UnitIndex place, const int first) {
    count = math::min(of.steps - first, AT_ONCE);
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      const size_type row = place.row(of, math::min(first + k, of.steps - 1));
      UNROLL for (int part = 0; part < 3; ++part) gate[part][k] = pack_at(of.rows + row * ROWS_STRIDE + part * SIZE + place.unit);
      x[k] = pack_at(of.x + row * X_STRIDE + place.unit);
      begins[k] = of.start != nullptr && of.start[row] != 0;
    }
  }
  DEVICE Unit unit(const int k, const int j, const float (&bias)[3][UNITS], const float before) const {
    return {gate[0][k][j] + bias[0][j], gate[1][k][j] + bias[1][j], gate[2][k][j] + bias[2][j], before};
  }
};

DEVICE void load_bias(float (&bias)[3][UNITS], const Sequences& of, const UnitIndex place) {
  UNROLL for (int part = 0; part < 3; ++part) {
    UNROLL for (int j = 0; j < UNITS; ++j) bias[part][j] = of.bias == nullptr ? 0.0f : of.bias[part * SIZE + place.unit + j];
  }
}
// Address of the checkpointed state before step `first`.
DEVICE float* checkpoint_at(const Sequences& of, const UnitIndex place, const int first) {
  return of.checkpoints + (size_type)(first / AT_ONCE) * of.count * SIZE + place.in_state();
}

DEVICE void scan_forward(const Forward& call, const int e) {
  const Sequences& of = call.of;
  const UnitIndex place(e);
  float bias[3][UNITS], state[UNITS];
  load_bias(bias, of, place);
  UNROLL for (int j = 0; j < UNITS; ++j) state[j] = call.state[place.outside(of) + j];
  NO_UNROLL for (int first = 0; first < of.steps; first += AT_ONCE) {
    Steps steps;
    steps.load(of, place, first);
    float* const checkpoint = checkpoint_at(of, place, first);
    if (of.checkpoints != nullptr) {
      UNROLL for (int j = 0; j < UNITS; ++j) checkpoint[j] = state[j];
    }
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {  // mutant(swap <): `count` ends it before
      if (k >= steps.count) break;
      float out[UNITS];
      UNROLL for (int j = 0; j < UNITS; ++j) {
        const Unit unit = steps.unit(k, j, bias, steps.begins[k] ? 0.0f : state[j]);
        state[j] = unit.after;
        out[j] = math::fma(unit.highway, state[j] - steps.x[k][j], steps.x[k][j]);
      }
      store(call.out + place.row(of, first + k) * X_STRIDE + place.unit, out);
    }
  }
  if (call.next == nullptr) return;
  UNROLL for (int j = 0; j < UNITS; ++j) call.next[place.outside(of) + j] = state[j];
}

DEVICE void scan_backward(const Backward& call, const int e) {
  const Sequences& of = call.of;
  const UnitIndex place(e);
  float bias[3][UNITS], d_bias[3][UNITS] = {}, d_state[UNITS];
  load_bias(bias, of, place);
  UNROLL for (int j = 0; j < UNITS; ++j) d_state[j] = call.d_next == nullptr ? 0.0f : call.d_next[place.outside(of) + j];
  NO_UNROLL for (int first = (of.steps - 1) / AT_ONCE * AT_ONCE; first >= 0; first -= AT_ONCE) {
    Steps steps;
    steps.load(of, place, first);
    Pack d_out[AT_ONCE];
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      d_out[k] = pack_at(call.d_out + place.row(of, math::min(first + k, of.steps - 1)) * X_STRIDE + place.unit);
    }
    // Recompute the states.
    float before[AT_ONCE][UNITS], state[UNITS];
    const float* const checkpoint = checkpoint_at(of, place, first);
    UNROLL for (int j = 0; j < UNITS; ++j) state[j] = checkpoint[j];
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {  // mutant(swap <): `count` ends it before
      if (k >= steps.count) break;
      UNROLL for (int j = 0; j < UNITS; ++j) {
        before[k][j] = steps.begins[k] ? 0.0f : state[j];
        state[j] = steps.unit(k, j, bias, before[k][j]).after;
      }
    }
    // Differentiate the steps in reverse order.
    UNROLL for (int k = AT_ONCE - 1; k >= 0; --k) {
      if (k >= steps.count) continue;
      float d_gate[3][UNITS], d_x[UNITS];
      UNROLL for (int j = 0; j < UNITS; ++j) {
        const Unit unit = steps.unit(k, j, bias, before[k][j]);
        const float out = d_out[k][j], gated = out * unit.highway, d = d_state[j] + gated, into = d * unit.update;
        d_x[j] = out - gated;
        d_gate[0][j] = into * unit.derivative;
        d_gate[1][j] = into * (1.0f - unit.update) * (unit.candidate - before[k][j]);
        d_gate[2][j] = gated * (1.0f - unit.highway) * (unit.after - steps.x[k][j]);
        d_state[j] = steps.begins[k] ? 0.0f : d - into;
        UNROLL for (int part = 0; part < 3; ++part) d_bias[part][j] += d_gate[part][j];
      }
      const size_type row = place.row(of, first + k);
      UNROLL for (int part = 0; part < 3; ++part) store(call.d_rows + row * ROWS_STRIDE + part * SIZE + place.unit, d_gate[part]);
      store(call.d_x + row * X_STRIDE + place.unit, d_x);
    }
  }
  // Store the gradients w.r.t. the initial state and the biases.
  if (call.d_state != nullptr) {
    UNROLL for (int j = 0; j < UNITS; ++j) call.d_state[place.outside(of) + j] = d_state[j];
  }
  if (call.d_bias == nullptr) return;
  float* const sums = call.d_bias + (size_type)place.sequence * 3 * SIZE + place.unit;
  UNROLL for (int part = 0; part < 3; ++part) {
    UNROLL for (int j = 0; j < UNITS; ++j) sums[part * SIZE + j] = d_bias[part][j];
  }
}

#include "drive/launch.cuh"
KERNEL(forward, Forward, call.of.count * ACROSS, scan_forward(call, e))
KERNEL(backward, Backward, call.of.count * ACROSS, scan_backward(call, e))
