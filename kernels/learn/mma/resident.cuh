// resident.cuh -- All minibatches of an iteration in one block, which keeps weights and moments throughout. It is for minibatches
// too small to divide among blocks, such as those of many runs in a population. Shared by resident.cu and group_resident.cu.
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "learn/mma/tile.cuh"
#include "learn/adam.cuh"

constexpr int NUMBERS = GRADIENT_FLOATS - METRICS;  // length of a gradient

struct Resident {
  TensorLearn about;
  Update update;
  int from, until;  // range of minibatches, counted over all epochs
  int looks;        // 1: the gradient of `from` is stored in `total`, and no step is taken
  int tiles;        // maximum number of tiles per minibatch
  int each;         // rows of each chunk, or 0 if they differ
  float inverse_each;
};

// Minibatch k of all epochs, as an epoch and a number within it.
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
  // Row i, as an argument of `RowIndex`, or -1 past the last row.
  DEVICE int row(const Resident& call, const int i) const {
    const Learn& learn = call.about.learn;
    if (call.each == 0) return chunks(call.about).row(i);
    // If all chunks have the same size, a row needs no lookup in a table.
    const int chunk = (int)(((float)i + 0.5f) * call.inverse_each);
    const int before = (number + chunk * (learn.minibatches - 1)) * call.each;
    return chunk < learn.blocks ? learn.epoch_order(epoch)[before + i] : -1;
  }
};

// Optimizer state that each thread keeps from the first minibatch to the last.
struct Optimizer {
  const Resident& call;
  const Coefficients of;
  const float learning_rate, max_grad_norm;
  float skip, bad, step;
  Corrections made;
  Report report;
  DEVICE Optimizer(const Resident& call, const Team team)
      : call(call), of(call.about.learn), learning_rate(*call.update.learning_rate), max_grad_norm(*call.update.max_grad_norm),
        skip(*call.update.skip), bad(*call.update.bad), step(call.update.step[0]), made(*call.update.corrections) {
    report.load(call.update, team);
  }

  // Return whether the run learns from minibatch k of all epochs.
  DEVICE bool reaches(const int k) const { return k < call.until && !(skip > 0.0f); }
  // Return the size of the next step, before its gradient is known.
  DEVICE StepSize next_size() {
    made = corrections_of(made, step + 1.0f);
    return step_size(SOUND, learning_rate, made);
  }
  // square: squared norm of the gradient. sums: reported metrics, summed over the rows of a minibatch.
  DEVICE AdamStep decide(const StepSize& size, const float square, const float* sums, const float inverse) const {
    AdamStep now = clipped_step(size, math::sqrt(square), max_grad_norm);
    if (!is_finite(loss_of(sums, inverse, of.entropy, of.value)) || bad > 0.0f) now.verdict = UNSOUND;
    return now;
  }
  // Finish minibatch k. Calls take_step() if the step is sound.
  template <class Take>
  DEVICE void go_on(const Team team, const AdamStep& now, const float* sums, const float inverse, const int k, Take take_step) {
    if (now.verdict != SOUND) {
      bad = skip = 1.0f;
      return;
    }
    const float target_kl = call.update.target_kl;
    const bool epoch_ends = (k + 1) % call.about.learn.minibatches == 0;
    // mutant(swap > 2): no mean is the limit exactly
    const bool too_far = epoch_ends && target_kl > 0.0f && sums[4] * inverse > target_kl;
    report.add(call.update, team, now.norm, [&](int, int number) INLINED {
      return Report::change(call.update, number, sums, inverse);
    });
    take_step();
    step += 1.0f;
    if (too_far) skip = 1.0f;
  }
  DEVICE void store(const Team team) const {
    const Update& update = call.update;
    const bool ends = call.until == call.about.learn.epochs * call.about.learn.minibatches;
    report.store(update, team);
    for (int k : team.each(TENSORS)) update.step[k] = step;
    if (!team.leader()) return;
    *update.corrections = made;
    *update.bad = bad;
    *update.skip = ends ? 0.0f : skip;
    if (ends) *update.iteration += 1;
  }
};
