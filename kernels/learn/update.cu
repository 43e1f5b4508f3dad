// update.cu -- Optimizer step: sum the gradients of all splits, clip by the global norm, apply Adam or RAdam, and pack the weights.
//
// Two launches take one step. A gradient has GRADIENT_FLOATS numbers, of which the last METRICS are sums of metrics.
//   reduce         sums `partial_sums` over the splits into `total`. A team has some segments of LANES numbers. It also stores
//                  sums of their squares. The team of the last segment stores the step size, which needs the metrics
//   update         each team computes the norm of the gradient from `squares`, then updates its range of weights. Team 0 also
//                  records the step: metrics, and the flags `skip` and `bad`
// Two launches initialize copies of the weights:
//   pack           packed weights in float32 (layers.cuh)
//   round_weights  weights in bfloat16
//
// Order of sums: the splits of each of P parts, then the parts. One thread adds each number, so the sums do not depend on the
// number of teams or threads.
// call: kernel arguments (drive/launch.cuh).
#include "learn/adam.cuh"
#include "learn/sums.cuh"

constexpr int LANES = PAD;  // numbers of a segment of `total`, the unit of work of the reduction
constexpr int SEGMENTS = GRADIENT_FLOATS / LANES;  // number of segments. The last one has the reported metrics
constexpr int MOST_PARTS = 32;  // equals PARTS of layout.py
static_assert(METRICS == LANES, "the reported metrics are one segment");
// Numbers of a segment that one thread sums. On a GPU these are four, so that a team loads all of them at the same time.
typedef Choose<SIDE_FLOATS == 1, Four, Lanes<LANES>>::type Side;
// mutant(swap == 2, constant 3, constant 4, constant 5): same order of sums
constexpr int SIDE = SIDE_FLOATS == 1 ? 4 : LANES, ACROSS = LANES / SIDE, AT_ONCE = SIDE_FLOATS == 1 ? 8 : 1;

struct Workspace {
  alignas(16) float part[MOST_PARTS][LANES];  // sums of each segment over the splits of each part
  alignas(16) float sum[MOST_PARTS][LANES];   // sums of each segment
  float chain[CHAINS];
  float factor;  // of RAdam
};

// Whether each team of `reduce` stores one sum of squares, instead of one per segment. Every team of `update` reads all of them, so
// fewer are faster. A team has MOST_PARTS segments if there is one split. Exact float32 has one sum per segment, because its bits
// must not depend on the number of splits.
DEVICE bool one_square_per_team(const Update& call) { return call.packed == nullptr && call.segments == MOST_PARTS; }
constexpr int TEAM_SQUARES = (SEGMENTS + MOST_PARTS - 1) / MOST_PARTS;

// ---- the sum of the gradients ----

// Scalars that the team of the last segment prefetches, so that their latency overlaps the reduction.
struct StepInputs {
  float inverse, ent_coef, vf_coef, learning_rate, step;
  Corrections made;

  DEVICE void load(const Update& call) {
    inverse = *call.inverse;
    ent_coef = *call.ent_coef;
    vf_coef = *call.vf_coef;
    learning_rate = *call.learning_rate;
    step = call.step[0] + 1.0f;  // mutant(constant 1): equal for all of the tensors
    made = *call.corrections;  // mutant(dropped statement): corrections start over, same bits
  }
  // Store the step size. Only the team's leader calls it. sums: reported metrics.
  DEVICE void store(const Update& call, const float* sums, const float factor, const float bad) const {
    const float loss = loss_of(sums, inverse, ent_coef, vf_coef);
    *call.corrections = made;
    const bool sound = is_finite(loss) && !(bad > 0.0f);  // mutant(constant): it is 0 or 1
    const int verdict = sound ? SOUND : UNSOUND;
    *call.step_size =
        call.rectified ? rectified_size(verdict, learning_rate, made, factor) : step_size(verdict, learning_rate, made);
  }
};

// Sum call.segments segments of `total` over all splits, from segment e * call.segments on, and store the sums of their squares.
DEVICE void reduce_segments(const Update& call, const Team team, Workspace& work, const int e) {
  release_next();
  await_previous();  // mutant(dropped statement): a CPU launch has ended by then
  const float skip = *call.skip, bad = *call.bad;
  const int begin_segment = e * call.segments, segments = math::min(call.segments, SEGMENTS - begin_segment);
  const bool last = begin_segment + segments == SEGMENTS;
  StepInputs inputs{};
  if (last) inputs.load(call);  // mutant(dropped condition): more work, same result
  // RAdam's factor is computed by the last thread, which often has no splits to add.
  if (last && call.rectified && team.rank == TEAM - 1) work.factor = rectification(inputs.step);
  // Sum the splits of each part.
  const int of_segment = call.parts * ACROSS;
  for (int k : team.each(segments * of_segment)) {
    const int segment = call.segments == 1 ? 0 : k / of_segment, within = k - segment * of_segment;
    const int part = within / ACROSS, lane = within % ACROSS * SIDE;
    // mutant(swapped arguments 1): the product fits into 32 bits
    const int begin = split_begin(part, call.splits, call.parts), end = split_begin(part + 1, call.splits, call.parts);
    const float* const from = call.partial_sums + (begin_segment + segment) * LANES + lane;
    Side sum{};
    for (int first = begin; first < end; first += AT_ONCE) {  // mutant(swap <): one more iteration, without splits
      Side more[AT_ONCE];
      UNROLL for (int j = 0; j < AT_ONCE; ++j) {
        if (first + j < end) more[j].load(from + (size_type)(first + j) * GRADIENT_FLOATS);
      }
      UNROLL for (int j = 0; j < AT_ONCE; ++j) {
        if (first + j < end) sum.add(more[j]);
      }
    }
    sum.store(work.part[segment * call.parts + part] + lane);
  }
  if (skip > 0.0f) {  // mutant(constant): it is 0 or 1
    if (last && team.leader()) call.step_size->verdict = SKIPPED;  // mutant(swap &&): all write the same
    return;
  }
  if (last) inputs.made = corrections_of(inputs.made, inputs.step);  // mutant(dropped condition): more work, same result
  team.sync();  // sums of the parts are written before they are added
  // Add the parts.
  for (int k : team.each(segments * ACROSS)) {
    const int segment = k / ACROSS, lane = k % ACROSS * SIDE;
    Side total{}, more;
    UNROLL_TIMES(8) for (int part = 0; part < call.parts; ++part) {
      more.load(work.part[segment * call.parts + part] + lane);
      total.add(more);
    }
    total.store(call.total + (begin_segment + segment) * LANES + lane);
    total.store(work.sum[segment] + lane);
  }
  team.sync();  // sums of the segments are written before they are squared
  // Sum the squares, and store the step size. The metrics count 0.
  for (int segment : team.each(segments)) {
    float square = 0.0f;
    if (!last || segment < segments - 1) {
      for (int j = 0; j < LANES; ++j) square = math::fma(work.sum[segment][j], work.sum[segment][j], square);
    }
    if (one_square_per_team(call)) work.chain[segment] = square;
    else call.squares[begin_segment + segment] = square;
  }
  if (one_square_per_team(call)) {
    const float square = add_halves(team, work.chain, segments);
    if (team.leader()) call.squares[e] = square;  // mutant(dropped condition): all threads write the same sum
  }
  if (last && team.leader()) inputs.store(call, work.sum[segments - 1], work.factor, bad);
}

// ---- the step ----

// Return the sum of the first COUNT `squares`: CHAINS partial sums, then their sum by halves. The number of turns is a constant:
// otherwise the compiler does not unroll the loop, and each load waits for the one before.
template <int COUNT> DEVICE float sum_squares(const Update& call, const Team team, Workspace& work) {
  constexpr int TURNS = (COUNT + CHAINS - 1) / CHAINS;  // mutant(swap -): a turn without squares
  const int used = chains_of(COUNT);
  for (int c : team.each(used)) {
    float square = 0.0f;
    UNROLL_TIMES(16) for (int turn = 0; turn < TURNS; ++turn) {  // mutant(swap <): a turn without squares
      const int k = c + turn * CHAINS;
      if (k < COUNT) square += call.squares[k];
    }
    work.chain[c] = square;
  }
  return add_halves(team, work.chain, used);
}
// Compute the norm of the gradient, and return the step with clipping. Every team computes the same bits.
DEVICE AdamStep decide_step(const Update& call, const Team team, Workspace& work) {
  const StepSize size = *call.step_size;
  const float max_norm = *call.max_grad_norm;
  const float squares = one_square_per_team(call) ? sum_squares<TEAM_SQUARES>(call, team, work)
                                               : sum_squares<SEGMENTS - 1>(call, team, work);
  return clipped_step(size, math::sqrt(squares), max_norm);
}

// Results of the step that later launches read. One team prefetches the inputs and stores the results, so that the others do not
// wait for them.
struct StepRecord {
  Report report;
  float change[Report::OWN], divergence, steps;

  DEVICE void load(const Update& call, const Team team) {
    const float* const sums = call.total + GRADIENT_FLOATS - METRICS;
    const float inverse = *call.inverse;
    divergence = sums[4] * inverse;
    steps = call.step[0];  // mutant(constant): equal for all of the tensors
    report.load(call, team);
    Report::each(call, team, [&](int own, int k) INLINED {
      if (k != call.norm_at) change[own] = Report::change(call, k, sums, inverse);  // mutant(dropped condition): not read there
    });
  }
  DEVICE void store(const Update& call, const Team team, const AdamStep& step) {
    const bool sound = step.verdict == SOUND;
    const bool too_far = sound && call.epoch_ends && call.target_kl > 0.0f && divergence > call.target_kl;
    if (sound) {
      report.add(call, team, step.norm, [&](int own, int) INLINED { return change[own]; });
      report.store(call, team);
      for (int k : team.each(TENSORS)) call.step[k] = steps + 1.0f;
    }
    if (!team.leader()) return;
    if (step.verdict == UNSOUND) *call.bad = 1.0f;
    if (step.verdict == UNSOUND || too_far) *call.skip = 1.0f;
    if (call.iteration_ends) {
      *call.skip = 0.0f;
      *call.iteration += 1;
    }
  }
};

// Pack one row of a layer's weights, or its biases.
template <class Here> DEVICE void pack_layer_row(const Update& call, const Team team, Here, const int row) {
  float* const transposed = call.packed + Here::FORWARD_BEFORE;
  if (row == Here::OUT) {
    NO_UNROLL for (int n : team.each(Here::OUT)) transposed[Here::IN * Here::OUT_PAD + n] = call.weights[2 * Here::NUMBER + 1][n];
    return;
  }
  const float* const weights = call.weights[2 * Here::NUMBER] + (size_type)row * Here::IN;
  float* const own = call.packed + Here::BACKWARD_BEFORE + row * Here::IN_PAD;
  NO_UNROLL for (int k : team.each(Here::IN)) {
    transposed[k * Here::OUT_PAD + row] = weights[k];
    if constexpr (PACK_FIRST || !Here::FIRST) own[k] = weights[k];
  }
}

DEVICE void pack_row(const Update& call, const Team team, const int e) {
  visit_row(e, [&](auto layer, const int row, int) INLINED { pack_layer_row(call, team, layer, row); });
}

// Decide the step. The first team also records it.
DEVICE AdamStep decide_and_record(const Update& call, const Team team, Workspace& work, const int e) {
  StepRecord record;
  if (e == 0) record.load(call, team);  // mutant(dropped condition): more work, same result
  const AdamStep step = decide_step(call, team, work);
  if (e == 0) record.store(call, team, step);
  return step;
}

// Weights that one thread loads at once: numbers i, i + TEAM, ... of a gradient.
struct Weights {
  WeightRow row[2];
  Weight own[2];

  DEVICE void load(const Update& call, const int i, const int until) {
    UNROLL for (int k = 0; k < 2; ++k) {
      row[k] = weight_of(call, i + k * TEAM, until);
      if (row[k].columns) own[k].load(row[k], 0);
    }
  }
  DEVICE void load_gradients() {
    UNROLL for (int k = 0; k < 2; ++k) if (row[k].columns) own[k].load_gradient(row[k], 0);
  }
  DEVICE void take_step(const AdamStep& step) {
    UNROLL for (int k = 0; k < 2; ++k) {
      if (!row[k].columns) continue;
      own[k].take_step(row[k], 0, step);
      if (row[k].rounded != nullptr) *row[k].rounded = own[k].value;
    }
  }
};

// Split e of the numbers of a gradient.
struct Numbers {
  int from, until;
  DEVICE Numbers(const Update& call, const int e)
      : from(split_begin(e, GRADIENT_FLOATS - METRICS, call.teams)),
        until(split_begin(e + 1, GRADIENT_FLOATS - METRICS, call.teams)) {}
};

// Update the weights of split e, without packing them. Rows may have any length.
DEVICE void update_numbers(const Update& call, const Team team, Workspace& work, const int e) {
  const Numbers of(call, e);
  AdamStep step;
  NO_UNROLL for (int i = of.from; i < of.until; i += 2 * TEAM) {  // one copy of the code for all iterations
    Weights some;
    some.load(call, i + team.rank, of.until);
    if (i == of.from) await_previous();  // mutant(dropped condition): later calls return at once
    some.load_gradients();
    // Each thread prefetches its first weights while the step is decided.
    if (i == of.from) step = decide_and_record(call, team, work, e);
    if (step.verdict != SOUND) return;
    some.take_step(step);
  }
}
// Write the bfloat16 copy of the weights of split e.
DEVICE void round_split(const Update& call, const Team team, const int e) {
  const Numbers of(call, e);
  for (int i = of.from + team.rank; i < of.until; i += TEAM) {  // mutant(swap <): `until` ends it before
    const WeightRow row = weight_of(call, i, of.until);
    if (row.columns) *row.rounded = row.weights[0];
  }
}

// Update and pack the rows of split e.
DEVICE void update_rows(const Update& call, const Team team, Workspace& work, const int e) {
  // mutant(swapped arguments 1): the product fits into 32 bits
  const int from = split_begin(e, ROWS_OF_WEIGHTS, call.teams), until = split_begin(e + 1, ROWS_OF_WEIGHTS, call.teams);
  // Prefetch the first weight of each thread while the step is decided.
  const WeightRow first = weight_row(call, from);
  const bool loads = TEAM > 1 && team.rank < first.columns;  // mutant(swap >): loads the prefetched weight again
  Weight ahead;
  if (loads) ahead.load(first, team.rank);
  await_previous();
  if (loads) ahead.load_gradient(first, team.rank);
  const AdamStep step = decide_and_record(call, team, work, e);
  if (step.verdict != SOUND) return;
  NO_UNROLL for (int r = from; r < until; ++r) {
    const WeightRow row = weight_row(call, r);
    NO_UNROLL for (int k : team.each(row.columns)) {  // a GPU thread has one or two, for which short code is faster
      Weight own;
      if (TEAM > 1 && r == from && k == team.rank) {  // mutant(constant): loads the prefetched weight again
        own = ahead;
      } else {
        own.load(row, k);
        own.load_gradient(row, k);
      }
      own.take_step(row, k, step);
    }
    // The row's weights are written before they are packed.
    team.sync();  // mutant(dropped sync, dropped statement): each thread packs the weights that it wrote
    pack_row(call, team, r);
  }
}

DEVICE void update_split(const Update& call, const Team team, Workspace& work, const int e) {
  if (call.packed == nullptr) {
    release_next();
    update_numbers(call, team, work, e);
  } else {
    // With packed weights the next launch is a float32 kernel. Its blocks use so much shared memory that an early start would delay
    // this launch.
    update_rows(call, team, work, e);
  }
}

#include "drive/launch.cuh"
KERNEL(pack, Update, ROWS_OF_WEIGHTS, pack_row(call, team, e))
KERNEL(round_weights, Update, call.teams, round_split(call, team, e))
KERNEL_AHEAD(reduce, Update, (SEGMENTS + call.segments - 1) / call.segments, reduce_segments(call, team, *work, e))
KERNEL_AHEAD(update, Update, call.teams, update_split(call, team, *work, e))
