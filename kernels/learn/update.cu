// update.cu -- From the gradients of pieces to new weights: reduction, clipping by the norm, Adam, and the packed weights.
#include "learn/adam.cuh"
#include "learn/sums.cuh"

constexpr int LANES = PAD;                                                 // numbers of `total` that one team adds up
constexpr int STRIPS = GRADIENT_FLOATS / LANES;                            // so many; the last one is of what is reported
constexpr int MOST_PARTS = 32;  // equal(constant): more room, never read
static_assert(METRICS == LANES, "what is reported is one strip");
// What one thread adds up of a strip: on a GPU four numbers, so that a team loads all at once.
typedef Choose<SIDE_FLOATS == 1, Four, Lanes<LANES>>::type Side;
// equal(swap == 2, constant 3, constant 4, constant 5): same order of sums
constexpr int SIDE = SIDE_FLOATS == 1 ? 4 : LANES, ACROSS = LANES / SIDE, AT_ONCE = SIDE_FLOATS == 1 ? 8 : 1;

struct Workspace {
  alignas(16) float part[MOST_PARTS][LANES];  // of each strip: sums over the pieces of each part
  alignas(16) float sum[MOST_PARTS][LANES];   // of each strip
  float chain[CHAINS];
  float factor;  // of RAdam
};

// ---- the sum of the gradients ----

// Scalars that the last strip's team prefetches, so that their latency overlaps the reduction.
struct StepInputs {
  float inverse, ent_coef, vf_coef, learning_rate, step;
  Corrections made;

  DEVICE void load(const Update& call) {
    inverse = *call.inverse;
    ent_coef = *call.ent_coef;
    vf_coef = *call.vf_coef;
    learning_rate = *call.learning_rate;
    step = call.step[0] + 1.0f;  // equal(constant 1): equal for all of the tensors
    made = *call.corrections;  // equal(dropped statement): corrections start over, same bits
  }
  // By the leader; `sums` is what is reported.
  DEVICE void store(const Update& call, const float* sums, const float factor, const float bad) const {
    const float loss = loss_of(sums, inverse, ent_coef, vf_coef);
    *call.corrections = made;
    const bool sound = is_finite(loss) && !(bad > 0.0f);  // equal(constant): it is 0 or 1
    const int verdict = sound ? SOUND : UNSOUND;
    *call.step_size =
        call.rectified ? rectified_size(verdict, learning_rate, made, factor) : step_size(verdict, learning_rate, made);
  }
};

// Some strips of `total`, from e * call.strips on: their sums, and the squares of these.
DEVICE void reduce_strips(const Update& call, const Team team, Workspace& work, const int e) {
  release_next();  // equal(dropped statement): GPU speed only
  await_previous();  // equal(dropped statement): a CPU launch has ended by then
  const float skip = *call.skip, bad = *call.bad;
  const int begin_strip = e * call.strips, strips = math::min(call.strips, STRIPS - begin_strip);
  const bool last = begin_strip + strips == STRIPS;
  StepInputs inputs{};
  if (last) inputs.load(call);  // equal(dropped condition): more work, same result
  // RAdam's factor is computed by the last thread, which often has no pieces to add.
  if (last && call.rectified && team.rank == TEAM - 1) work.factor = rectification(inputs.step);
  const int of_strip = call.parts * ACROSS;
  for (int k : team.each(strips * of_strip)) {
    const int strip = call.strips == 1 ? 0 : k / of_strip, within = k - strip * of_strip;
    const int part = within / ACROSS, lane = within % ACROSS * SIDE;
    // equal(swapped arguments 1): the product fits into 32 bits
    const int begin = share(part, call.pieces, call.parts), end = share(part + 1, call.pieces, call.parts);
    const float* const from = call.partials + (begin_strip + strip) * LANES + lane;
    Side sum{};
    for (int first = begin; first < end; first += AT_ONCE) {  // equal(swap <): one turn more, of no pieces
      Side more[AT_ONCE];
      UNROLL for (int j = 0; j < AT_ONCE; ++j) {
        if (first + j < end) more[j].load(from + (size_type)(first + j) * GRADIENT_FLOATS);
      }
      UNROLL for (int j = 0; j < AT_ONCE; ++j) {
        if (first + j < end) sum.add(more[j]);
      }
    }
    sum.store(work.part[strip * call.parts + part] + lane);
  }
  if (skip > 0.0f) {  // equal(constant): it is 0 or 1
    if (last && team.leader()) call.step_size->verdict = SKIPPED;  // equal(swap &&): all write the same
    return;
  }
  if (last) inputs.made = corrections_of(inputs.made, inputs.step);  // equal(dropped condition): more work, same result
  team.sync();
  for (int k : team.each(strips * ACROSS)) {
    const int strip = k / ACROSS, lane = k % ACROSS * SIDE;
    Side total{}, more;
    UNROLL_TIMES(8) for (int part = 0; part < call.parts; ++part) {
      more.load(work.part[strip * call.parts + part] + lane);
      total.add(more);
    }
    total.store(call.total + (begin_strip + strip) * LANES + lane);
    total.store(work.sum[strip] + lane);
  }
  team.sync();
  for (int strip : team.each(last ? strips - 1 : strips)) {
    float square = 0.0f;
    for (int j = 0; j < LANES; ++j) square = math::fma(work.sum[strip][j], work.sum[strip][j], square);
    call.squares[begin_strip + strip] = square;
  }
  if (last && team.leader()) inputs.store(call, work.sum[strips - 1], work.factor, bad);
}

// ---- the step ----

DEVICE AdamStep decide_step(const Update& call, const Team team, Workspace& work) {
  const StepSize size = *call.step_size;
  const float max_norm = *call.max_grad_norm;
  const int used = chains_of(STRIPS - 1);  // equal(swap -): empty chains add 0
  for (int c : team.each(used)) {
    float square = 0.0f;
    UNROLL_TIMES(16) for (int strip = c; strip < STRIPS - 1; strip += CHAINS) square += call.squares[strip];
    work.chain[c] = square;
  }
  return clipped_step(size, math::sqrt(add_halves(team, work.chain, used)), max_norm);
}

// What the launches after this one read. One team stores it, and prefetches its inputs, lest all teams wait for it.
struct StepRecord {
  Report report;
  float change[Report::OWN], divergence, steps;

  DEVICE void load(const Update& call, const Team team) {
    const float* const sums = call.total + GRADIENT_FLOATS - METRICS;
    const float inverse = *call.inverse;
    divergence = sums[4] * inverse;
    steps = call.step[0];  // equal(constant): equal for all of the tensors
    report.load(call, team);
    Report::each(call, team, [&](int own, int k) INLINED {
      if (k != call.norm_at) change[own] = Report::change(call, k, sums, inverse);  // equal(dropped condition): not read there
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

// Puts one row of a layer's weights, or its biases, into `copies`.
template <class Here> DEVICE void copy_row(const Update& call, const Team team, Here, const int row) {
  float* const transposed = call.copies + Here::FORWARD_BEFORE;
  if (row == Here::OUT) {
    NO_UNROLL for (int n : team.each(Here::OUT)) transposed[Here::IN * Here::OUT_PAD + n] = call.weights[2 * Here::NUMBER + 1][n];
    return;
  }
  const float* const weights = call.weights[2 * Here::NUMBER] + (size_type)row * Here::IN;
  float* const own = call.copies + Here::BACKWARD_BEFORE + row * Here::IN_PAD;
  NO_UNROLL for (int k : team.each(Here::IN)) {
    transposed[k * Here::OUT_PAD + row] = weights[k];
    if constexpr (COPY_FIRST || !Here::FIRST) own[k] = weights[k];
  }
}

DEVICE void lay_out_row(const Update& call, const Team team, const int e) {
  visit_row(e, [&](auto layer, const int row, int) INLINED { copy_row(call, team, layer, row); });
}

// Decide the step. The first team also records it.
DEVICE AdamStep decide_and_record(const Update& call, const Team team, Workspace& work, const int e) {
  StepRecord record;
  if (e == 0) record.load(call, team);  // equal(dropped condition): more work, same result
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

// Share e of the numbers of a gradient.
struct Numbers {
  int from, until;
  DEVICE Numbers(const Update& call, const int e)
      : from(share(e, GRADIENT_FLOATS - METRICS, call.shares)), until(share(e + 1, GRADIENT_FLOATS - METRICS, call.shares)) {}
};

// Share e of the weights takes its step, without copies. Rows may be of any length.
DEVICE void update_numbers(const Update& call, const Team team, Workspace& work, const int e) {
  const Numbers of(call, e);
  AdamStep step;
  NO_UNROLL for (int i = of.from; i < of.until; i += 2 * TEAM) {  // one copy of the code for all iterations
    Weights some;
    some.load(call, i + team.rank, of.until);
    if (i == of.from) await_previous();  // equal(dropped condition, swap ==): a CPU launch has ended by then
    some.load_gradients();
    // Each thread prefetches its first weights while the step is decided.
    if (i == of.from) step = decide_and_record(call, team, work, e);
    if (step.verdict != SOUND) return;
    some.take_step(step);
  }
}
// Round share e of the weights to `matrices`.
DEVICE void round_share(const Update& call, const Team team, const int e) {
  const Numbers of(call, e);
  for (int i = of.from + team.rank; i < of.until; i += TEAM) {
    const WeightRow row = weight_of(call, i, of.until);
    if (row.columns) *row.rounded = row.weights[0];
  }
}

// Share e of the rows of the weights takes its step, and is copied.
DEVICE void update_rows(const Update& call, const Team team, Workspace& work, const int e) {
  // equal(swapped arguments 1): the product fits into 32 bits
  const int from = share(e, ROWS_OF_WEIGHTS, call.shares), until = share(e + 1, ROWS_OF_WEIGHTS, call.shares);
  // Each thread prefetches its first weight while the step is decided.
  const WeightRow first = weight_row(call, from);
  const bool loads = TEAM > 1 && team.rank < first.columns;  // equal(swap >): loads again what it loaded ahead
  Weight ahead;
  if (loads) ahead.load(first, team.rank);
  await_previous();  // equal(dropped statement): a CPU launch has ended by then
  if (loads) ahead.load_gradient(first, team.rank);
  const AdamStep step = decide_and_record(call, team, work, e);
  if (step.verdict != SOUND) return;
  NO_UNROLL for (int r = from; r < until; ++r) {
    const WeightRow row = weight_row(call, r);
    NO_UNROLL for (int k : team.each(row.columns)) {  // a GPU's members have one or two: short code is sooner there
      Weight own;
      if (TEAM > 1 && r == from && k == team.rank) {  // equal(constant): loads again what it loaded ahead
        own = ahead;
      } else {
        own.load(row, k);
        own.load_gradient(row, k);
      }
      own.take_step(row, k, step);
    }
    team.sync();  // equal(dropped sync, dropped statement): each member copies what it wrote itself
    lay_out_row(call, team, r);
  }
}

DEVICE void update_share(const Update& call, const Team team, Workspace& work, const int e) {
  if (call.copies == nullptr) {
    release_next();  // equal(dropped statement): GPU speed only
    update_numbers(call, team, work, e);
  } else {
    // Who reads copies computes exactly, in blocks with so much memory that those that come early keep this launch waiting.
    update_rows(call, team, work, e);
  }
}

#include "drive/launch.cuh"
KERNEL(lay_out, Update, ROWS_OF_WEIGHTS, lay_out_row(call, team, e))
KERNEL(round_weights, Update, call.shares, round_share(call, team, e))
KERNEL_AHEAD(reduce, Update, (STRIPS + call.strips - 1) / call.strips, reduce_strips(call, team, *work, e))
KERNEL_AHEAD(update, Update, call.shares, update_share(call, team, *work, e))
