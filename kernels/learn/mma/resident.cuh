// resident.cuh -- all minibatches of an iteration by one block: what resident.cu and group_resident.cu share.
//
// What a step changes, weights and Adam's averages, stays with the block from the first minibatch to the last. For minibatches
// of few rows, which other blocks could not share: many members of a population have a block each.
// Constants: those of layers.cuh, minibatches.cuh and loss.cuh.
#pragma once
#include "learn/adam.cuh"
#include "learn/mma/tile.cuh"

constexpr int NUMBERS = GRADIENT_FLOATS - METRICS;  // of a gradient

struct Resident {
  TensorLearn about;
  Update update;
  int from, until;  // of the minibatches of all epochs
  int looks;        // 1: the gradient of `from` goes to `total`, and no step is taken
  int tiles;        // of each minibatch, at most
  int each;         // rows of each chunk, or 0 if they differ
  float inverse_each;
};

// Which minibatch of which epoch.
struct Minibatch {
  int epoch, number;
  DEVICE Minibatch(const Learn& call, const int k) : epoch(k / call.minibatches), number(k - epoch * call.minibatches) {}
  DEVICE void next(const Learn& call) {
    if (++number < call.minibatches) return;
    number = 0;
    ++epoch;
  }
  DEVICE Chunks chunks(const TensorLearn& about) const {
    const int* const table = about.table + number * (2 + 2 * about.learn.blocks);
    return Chunks(about.learn, epoch, table, table + 2);
  }
  // Row i, as `Place` takes it; -1 behind the last one.
  DEVICE int row(const Resident& call, const int i) const {
    const Learn& learn = call.about.learn;
    if (call.each == 0) return chunks(call.about).row(i);
    // Where chunks are alike, no row has to wait for a table.
    const int chunk = (int)(((float)i + 0.5f) * call.inverse_each);
    const int before = (number + chunk * (learn.minibatches - 1)) * call.each;
    return chunk < learn.blocks ? learn.epoch_order(epoch)[before + i] : -1;
  }
};

// What all members know alike of the steps so far.
struct Standing {
  float skip, bad, step;
  Corrections made;
  DEVICE explicit Standing(const Update& call) : skip(*call.skip), bad(*call.bad), step(call.step[0]), made(*call.corrections) {}

  DEVICE void leave(const Update& call, const Team team, const bool ends) const {
    for (int k : team.each(TENSORS)) call.step[k] = step;
    if (!team.leader()) return;
    *call.corrections = made;
    *call.bad = bad;
    *call.skip = ends ? 0.0f : skip;
    if (ends) *call.iteration += 1;
  }
};

struct Rates {
  float learning_rate, max_grad_norm;
  DEVICE explicit Rates(const Update& call) : learning_rate(*call.learning_rate), max_grad_norm(*call.max_grad_norm) {}
};

// What this member adds to `metric_sums`.
struct Report {
  static constexpr int OWN = own_count(METRICS);
  float metric[OWN];
  DEVICE Report(const Update& call, const Team team) {
    each(call, team, [&](int own, int k) INLINED { metric[own] = call.metric_sums[k]; });
  }
  template <class Visit> static DEVICE void each(const Update& call, const Team team, Visit visit) {
    UNROLL for (int own = 0; own < OWN; ++own) {  // equal(swap <): no report is as long
      const int k = team.rank + own * TEAM;
      if (k <= call.reported) visit(own, k);
    }
  }
  DEVICE void add(const Update& call, const Team team, const float* sums, const float inverse, const float norm) {
    each(call, team, [&](int own, int k) INLINED {
      // equal(swap <): the norm is taken instead
      metric[own] += k == call.norm_at ? norm : k == call.reported ? 1.0f : sums[k < call.norm_at ? k : k - 1] * inverse;
    });
  }
  DEVICE void leave(const Update& call, const Team team) const {
    each(call, team, [&](int own, int k) INLINED { call.metric_sums[k] = metric[own]; });
  }
};

// ---- the step ----

// What is known of the next step before its gradient is.
struct Coming {
  float rate, root;  // the last one over the root, unlike update.cu's: each weight's step multiplies by it
  DEVICE Coming(const Rates& rates, Standing& now) {
    now.made = corrections_of(now.made, now.step + 1.0f);
    rate = rates.learning_rate / now.made.first;
    root = 1.0f / math::sqrt(now.made.second);
  }
};

// One weight's step: struct Weight's, by the hardware's root and quotient, with one over the correction's root.
DEVICE void descend(float& value, float& first, float& second, const float gradient, const Decision& decision) {
  const float scaled = gradient * decision.scale;
  first = math::fma(FIRST_RATE, scaled - first, first);
  second = math::fma(1.0f - SECOND_RATE, second, SECOND_RATE * scaled * scaled);
  value -= decision.rate * quotient(first, math::fma(square_root(second), decision.root, EPSILON));
}

// What a member knows of the steps from the first minibatch to the last.
struct Course {
  const Resident& call;
  const Coefficients of;
  const Rates rates;
  Standing now;
  Report report;
  DEVICE Course(const Resident& call, const Team team)
      : call(call), of(call.about.learn), rates(call.update), now(call.update), report(call.update, team) {}

  // Whether minibatch k of all epochs is learnt from.
  DEVICE bool reaches(const int k) const { return k < call.until && !(now.skip > 0.0f); }
  // `square`: of the gradient's norm; `sums`: of what is reported, over a minibatch's rows.
  DEVICE Decision decide(const Coming& coming, const float square, const float* sums, const float inverse) const {
    // equal(swap +, swap -, constant 2): only whether it is finite is asked
    const float loss = sums[0] * inverse - of.entropy * (sums[2] * inverse) + of.value * (sums[1] * inverse);
    // equal(swap +): within the norm's rounding
    const float norm = math::sqrt(square), scale = rates.max_grad_norm / (norm + 1e-6f);
    const bool sound = is_finite(loss) && is_finite(norm) && !(now.bad > 0.0f);
    return {sound ? SOUND : UNSOUND, norm, scale < 1.0f ? scale : 1.0f, coming.rate, coming.root};
  }
  // What follows minibatch k: step(), if it may be taken.
  template <class Step>
  DEVICE void go_on(const Team team, const Decision& decision, const float* sums, const float inverse, const int k, Step step) {
    if (decision.verdict != SOUND) {
      now.bad = now.skip = 1.0f;
      return;
    }
    const float target_kl = call.update.target_kl;
    const bool epoch_ends = (k + 1) % call.about.learn.minibatches == 0;
    // equal(swap > 2): no mean is the limit exactly
    const bool too_far = epoch_ends && target_kl > 0.0f && sums[4] * inverse > target_kl;
    report.add(call.update, team, sums, inverse, decision.norm);
    step();
    now.step += 1.0f;
    if (too_far) now.skip = 1.0f;
  }
  DEVICE void leave(const Team team) const {
    report.leave(call.update, team);
    now.leave(call.update, team, call.until == call.about.learn.epochs * call.about.learn.minibatches);
  }
};
