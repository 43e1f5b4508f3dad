// rows.cu -- Rows in bfloat16 for a library's products: observations, activations, and gradients before the activation.
// Constants: OBS, OBS_STRIDE (row length of observations, a multiple of 8, padded with zeros), STRIDE (row length of activations,
// also a multiple of 8), RELU (0: tanh), those of sequences.cuh. Generated: HALF 1.
// call: kernel arguments (drive/launch.cuh).
#include "learn/observed.cuh"
#include "learn/layerwise/row.cuh"
#include "learn/layerwise/sequences.cuh"

using namespace policy;  // functions.cuh

constexpr int ROWS_AT_ONCE = 64;   // rows of one team
constexpr int FOURS = STRIDE / 4;  // of a row of activations
// Threads that process the same columns in different rows, at least one.
constexpr int ROWS_IN_PARALLEL = TEAM > FOURS ? TEAM / FOURS : 1;

struct Workspace { float sum[ROWS_IN_PARALLEL][STRIDE]; };

// Arguments of `observe`, for acting.
struct Observe {
  int rows;
  const void* obs;      // (rows) of observed.cuh
  const float* center;  // (OBS): means for normalizing observations, or null
  const float* scale;   // (OBS): reciprocal deviations
  bf16* out;            // (rows, OBS_STRIDE)
};
struct ObserveSequences {
  Learn learn;
  bf16* out;            // rows (OBS_STRIDE)
};
struct Activate {
  int rows;
  bf16* out;            // (rows, STRIDE): results of a product, then activations
  bf16* out_grad;       // (rows, STRIDE): gradients w.r.t. activations, then w.r.t. the results of the product
  float* sums;          // (teams, STRIDE): sums of the latter over the rows of a team
};
// Four entries of a row.
struct alignas(8) MAY_ALIAS Halves { bf16 of[4]; };

// Eight entries of a row.
struct alignas(16) MAY_ALIAS Eight { bf16 of[8]; };

// Round `rows` observations, each by several threads. from(m): the m-th observation. to(m): its row.
template <class From, class To>
DEVICE void round_rows(const Team team, const int rows, const float* center, const float* scale, From from, To to) {
  constexpr int EIGHTS = OBS_STRIDE / 8;
  for (int i : team.each(rows * EIGHTS)) {
    const int m = i / EIGHTS, first = i % EIGHTS * 8;
    const Observed* const obs = from(m);
    Eight found;
    UNROLL for (int j = 0; j < 8; ++j) {
      const int d = first + j;
      put(found.of[j], d < OBS ? normalize_entry(entry_of(obs, d), center, scale, d) : 0.0f);
    }
    *(Eight*)(to(m) + first) = found;
  }
}
DEVICE void observe_rows(const Observe& call, const Team team, const int e) {
  const size_type first = (size_type)e * ROWS_AT_ONCE;
  const int left = call.rows - (int)first, rows = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
  round_rows(team, rows, call.center, call.scale, [&](int m) INLINED { return observed(call.obs, first + m); },
             [&](int m) INLINED { return call.out + (first + m) * OBS_STRIDE; });
}
DEVICE int teams_of_block(const Learn& call) { return (steps_of(call) * most_sequences(call) + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE; }

DEVICE void observe_rows_of_block(const ObserveSequences& call, const Team team, const int e) {
  const Learn& learn = call.learn;
  const Sequences of(learn, e / teams_of_block(learn));
  const int first = e % teams_of_block(learn) * ROWS_AT_ONCE, left = of.rows() - first;
  const int rows = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
  if (*learn.skip > 0.0f) return;
  round_rows(team, rows, learn.center, learn.scale,
             [&](int m) INLINED {
               const RowIndex place = of.place(first + m);
               return observed(learn.obs[place.group], place.row);
             },
             [&](int m) INLINED { return call.out + of.row(first + m) * OBS_STRIDE; });
}

// Call visit(column, index of its number) for each group of four columns in all rows of this team.
template <class Visit> DEVICE void each_activation(const Activate& call, const Team team, const int e, Visit visit) {
  const int first = e * ROWS_AT_ONCE, left = call.rows - first, rows = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
  for (int four = team.rank % FOURS; four < FOURS && team.rank / FOURS < ROWS_IN_PARALLEL; four += TEAM) {
    for (int m = team.rank / FOURS; m < rows; m += ROWS_IN_PARALLEL) visit(4 * four, (size_type)(first + m) * STRIDE + 4 * four);
  }
}
DEVICE void activate_rows(const Activate& call, const Team team, const int e) {
  each_activation(call, team, e, [&](int, size_type at) INLINED {
    Halves& four = *(Halves*)(call.out + at);
    Halves found = four;
    UNROLL for (bf16& x : found.of) put(x, activation<RELU>(number(x)));
    four = found;
  });
}
DEVICE void activate_back_rows(const Activate& call, const Team team, Workspace& work, const int e) {
  for (int i : team.each(ROWS_IN_PARALLEL * STRIDE)) work.sum[i / STRIDE][i % STRIDE] = 0.0f;
  team.sync();  // zeros are written before sums are added to them
  each_activation(call, team, e, [&](int column, size_type at) INLINED {
    const Halves out = *(const Halves*)(call.out + at);
    Halves& four = *(Halves*)(call.out_grad + at);
    Halves found = four;
    UNROLL for (int j = 0; j < 4; ++j) {
      const float grad = number(found.of[j]) * activation_gradient<RELU>(number(out.of[j]));
      put(found.of[j], grad);
      work.sum[team.rank / FOURS % ROWS_IN_PARALLEL][column + j] += grad;
    }
    four = found;
  });
  team.sync();  // all threads' sums are written before they are added up
  for (int k : team.each(STRIDE)) {
    float sum = 0.0f;
    for (int i = 0; i < ROWS_IN_PARALLEL; ++i) sum += work.sum[i][k];
    call.sums[(size_type)e * STRIDE + k] = sum;
  }
}

#include "drive/launch.cuh"
KERNEL(observe, Observe, (call.rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, observe_rows(call, team, e))
KERNEL(observe_sequences, ObserveSequences, call.learn.blocks * teams_of_block(call.learn), observe_rows_of_block(call, team, e))
KERNEL(activate, Activate, (call.rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, activate_rows(call, team, e))
KERNEL(activate_back, Activate, (call.rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, activate_back_rows(call, team, *work, e))
