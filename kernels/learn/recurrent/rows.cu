// rows.cu -- rows in bfloat16 for a library's products: observations, activations, and the derivatives that pass these.
// Constants: OBS, OBS_STRIDE (of a row: what is behind its entries stays 0), WIDTH, STRIDE (likewise, of activations), RELU (0: tanh);
// those of sequences.cuh. Generated: HALF 1.
#include "learn/recurrent/row.cuh"
#include "learn/recurrent/sequences.cuh"

using namespace policy;  // functions.cuh

constexpr int ROWS_AT_ONCE = 64;  // that one team has

struct Workspace {};

// Rows that are acted upon.
struct See {
  int rows;
  const float* obs;     // (rows, OBS)
  const float* center;  // (OBS) or null: observations are normalised
  const float* scale;   // (OBS)
  bf16* out;            // (rows, OBS_STRIDE)
};
struct SeeSequences {
  Learn learn;
  bf16* out;            // rows (OBS_STRIDE)
};
struct Activate {
  int rows;
  bf16* out;            // (rows, STRIDE): what a product has left, then activations
  bf16* by_out;         // (rows, STRIDE): derivatives by activations, then by what the product has left
};

DEVICE void see_rows(const See& call, const Team team, const int e) {
  const int first = e * ROWS_AT_ONCE, left = call.rows - first, rows = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
  for (int i : team.each(rows * OBS)) {
    const size_type row = first + i / OBS;
    const int d = i % OBS;
    put(call.out[row * OBS_STRIDE + d], seen(call.obs[row * OBS + d], call.center, call.scale, d));
  }
}
DEVICE int shares_of_block(const Learn& call) { return (call.steps * most_sequences(call) + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE; }

DEVICE void see_sequences(const SeeSequences& call, const Team team, const int e) {
  const Learn& learn = call.learn;
  const Sequences of(learn, e / shares_of_block(learn));
  const int first = e % shares_of_block(learn) * ROWS_AT_ONCE, left = of.rows() - first;
  const int rows = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
  if (*learn.skip > 0.0f) return;
  for (int i : team.each(rows * OBS)) {
    const int row = first + i / OBS, d = i % OBS, t = row / of.count, s = row - t * of.count;
    const Place place = of.place(t, s);
    const float x = learn.obs[place.group][(size_type)place.row * OBS + d];
    put(call.out[of.row(t, s) * OBS_STRIDE + d], seen(x, learn.center, learn.scale, d));
  }
}

template <class Visit> DEVICE void each_entry(const Activate& call, const Team team, const int e, Visit visit) {
  const int first = e * ROWS_AT_ONCE, left = call.rows - first, rows = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
  for (int i : team.each(rows * WIDTH)) visit((size_type)(first + i / WIDTH) * STRIDE + i % WIDTH);
}
DEVICE void activate_rows(const Activate& call, const Team team, const int e) {
  each_entry(call, team, e, [&](size_type at) INLINED { put(call.out[at], activation<RELU>(number(call.out[at]))); });
}
DEVICE void activate_back(const Activate& call, const Team team, const int e) {
  each_entry(call, team, e, [&](size_type at) INLINED {
    put(call.by_out[at], number(call.by_out[at]) * activation_gradient<RELU>(number(call.out[at])));
  });
}

#include "drive/launch.cuh"
KERNEL(see, See, (call.rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, see_rows(call, team, e))
KERNEL(see_in_sequences, SeeSequences, call.learn.blocks * shares_of_block(call.learn), see_sequences(call, team, e))
KERNEL(forwards, Activate, (call.rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, activate_rows(call, team, e))
KERNEL(backwards, Activate, (call.rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, activate_back(call, team, e))
