// adam.cuh -- Adam and RAdam: kernel arguments, bias corrections, the update of one parameter, and the report of a step.
//
// Source: Kingma & Ba 2015, "Adam: a method for stochastic optimization", algorithm 1, with epsilon outside of the root.
// RAdam: Liu et al. 2020, "On the variance of the adaptive learning rate and beyond", algorithm 2. Epsilon is torch's.
// Bias corrections follow the recursions of the moments for a gradient of 1. This needs no powers, and corrects rounding too. If they
// do not belong to `step`, for example after a checkpoint was loaded, they are recomputed from step 0.
// Constants: those of layers.cuh.
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "learn/layers.cuh"
#include "drive/halves.cuh"

constexpr float FIRST_RATE = 0.1f, SECOND_RATE = 0.001f, EPSILON = 1e-5f;  // 1 - beta of each moment
constexpr float RECTIFIED_EPSILON = 1e-8f;

enum Verdict { SKIPPED, SOUND, UNSOUND };
// Step size, computed before the norm of the gradient is known.
struct StepSize {
  int verdict;  // SOUND: the step is taken if the norm is finite
  float rate;   // learning rate over the first correction
  float root;   // root of the second correction, or one over it (APPROXIMATE)
  float epsilon;
};
// An optimizer step. All teams compute the same one.
struct AdamStep : StepSize {
  float norm, scale;  // norm of the gradient, and the factor that clips it
};
// The moments of a gradient of 1 after `step` steps.
struct Corrections { float first, second, step; };

struct Update {
  int splits, parts;           // splits of `partial_sums`, and parts P in which they are added, at most MOST_PARTS
  int segments;                // segments that one team sums. segments * parts is at most MOST_PARTS
  int teams;                   // number of teams that divide the rows of weights
  int epoch_ends;              // 1: last minibatch of an epoch
  int iteration_ends;          // 1: last minibatch of the iteration
  int reported;                // number of metrics in `metric_sums`
  int norm_at;                 // index of the gradient norm among the metrics
  int rectified;               // 1: RAdam
  float target_kl;             // 0: none
  const float* inverse;        // (1): reciprocal number of the minibatch's active rows
  const float* partial_sums;   // (splits, GRADIENT_FLOATS)
  float* total;                // (GRADIENT_FLOATS)
  float* squares;              // (SEGMENTS): sums of squares of `total`, one per segment or one per team of `reduce`
  StepSize* step_size;         // (1)
  Corrections* corrections;    // (1)
  const float* learning_rate;  // (1)
  const float* ent_coef;       // (1)
  const float* vf_coef;        // (1)
  const float* max_grad_norm;  // (1)
  float* skip;                 // (1): if 1, no step is taken until the next iteration
  float* bad;                  // (1): 1 after a non-finite loss or gradient. No step is taken from then on
  i64* iteration;              // (1): iterations so far
  float* metric_sums;          // (reported + 1): sums of the metrics over steps, and the number of steps
  float* step;                 // (TENSORS): steps so far, all equal
  float* packed;               // packed weights (layers.cuh), or null if no kernel reads them
  bf16* matrices;              // or null: each layer's weights and biases in bfloat16, padded with zeros to multiples of ALIGNED
  float* weights[TENSORS];     // the network's own memory, (OUT, IN) or (OUT)
  float* first[TENSORS];       // first and second moments, of the same shapes
  float* second[TENSORS];
};

DEVICE bool is_finite(float x) { return (math::bits(x) & 0x7f800000u) != 0x7f800000u; }

// Return the corrections of step `step`. made: those of the previous step. If they are of another step, the recursion starts over.
DEVICE Corrections corrections_of(Corrections made, const float step) {
  // mutant(dropped condition, swap +, constant 1): corrections start over, same bits
  if (made.step + 1.0f != step) made = {0.0f, 0.0f, 0.0f};
  while (made.step < step) {
    const Corrections before = made;
    made.first = math::fma(FIRST_RATE, 1.0f - made.first, made.first);
    made.second = math::fma(1.0f - SECOND_RATE, made.second, SECOND_RATE);
    made.step += 1.0f;
    // mutant(swap == 1): more work, same result
    if (made.first == before.first && made.second == before.second) made.step = step;  // they have converged
  }
  return made;
}

DEVICE StepSize step_size(const int verdict, const float learning_rate, const Corrections& corrections) {
  const float root = math::sqrt(corrections.second);
  return {verdict, learning_rate / corrections.first, APPROXIMATE ? 1.0f / root : root, EPSILON};
}

// Weights of the last `count` gradients in the second moment. The gradient of k steps ago has weight (1 - beta2) beta2^k. power is
// beta2^count, sum is the sum of the weights, and age is the sum of the weights times k + 1.
struct MomentWeights { float count, power, sum, age; };
DEVICE MomentWeights joined(const MomentWeights& late, const MomentWeights& early) {
  return {late.count + early.count, late.power * early.power, late.sum + late.power * early.sum,
          late.age + late.power * (early.age + late.count * early.sum)};
}
// RAdam's rectification factor of step `step`, or 0 if the second moment has too few gradients. The length of the moving average is
// computed from sums of positive terms. The formula of the paper subtracts large numbers instead, which cancels in float32.
DEVICE float rectification(const float step) {
  constexpr float LONGEST = 2.0f / SECOND_RATE - 1.0f;
  MomentWeights all{0.0f, 1.0f, 0.0f, 0.0f}, some{1.0f, 1.0f - SECOND_RATE, SECOND_RATE, SECOND_RATE};
  for (u32 left = (u32)step; left != 0; left >>= 1) {
    if (left & 1) all = joined(all, some);
    some = joined(some, some);
  }
  const float length = 2.0f * (all.age / all.sum) - 1.0f;
  if (length <= 5.0f) return 0.0f;
  return math::sqrt((length - 4.0f) * (length - 2.0f) * LONGEST / ((LONGEST - 4.0f) * (LONGEST - 2.0f) * length));
}
// Step size of RAdam, given its factor. If that is 0 there is no division by the second moment, so the denominator is 1.
DEVICE StepSize rectified_size(const int verdict, const float learning_rate, const Corrections& corrections, const float factor) {
  StepSize size = step_size(verdict, learning_rate, corrections);
  if (factor == 0.0f) return {verdict, size.rate, APPROXIMATE ? 0.0f : math::infinity(), 1.0f};
  size.rate *= factor;
  size.epsilon = RECTIFIED_EPSILON / math::sqrt(corrections.second);
  return size;
}
// Return the step for a gradient with this norm, which is clipped to `max_norm`.
DEVICE AdamStep clipped_step(const StepSize& size, const float norm, const float max_norm) {
  const float scale = max_norm / (norm + 1e-6f);
  const int verdict = size.verdict == SOUND && !is_finite(norm) ? UNSOUND : size.verdict;
  // mutant(swap <): equal where they meet
  return {{verdict, size.rate, size.root, size.epsilon}, norm, scale < 1.0f ? scale : 1.0f};
}
// Return the loss of a minibatch from its reported sums.
DEVICE float loss_of(const float* sums, const float inverse, const float ent_coef, const float vf_coef) {
  return sums[0] * inverse - ent_coef * (sums[2] * inverse) + vf_coef * (sums[1] * inverse);
}

// Update one parameter and its moments.
DEVICE void descend(float& value, float& first, float& second, const float gradient, const AdamStep& step) {
  const float scaled = gradient * step.scale;
  first = math::fma(FIRST_RATE, scaled - first, first);
  second = math::fma(1.0f - SECOND_RATE, second, SECOND_RATE * scaled * scaled);
  const float root = square_root(second);
  const float deviation = APPROXIMATE ? math::fma(root, step.root, step.epsilon) : root / step.root + step.epsilon;
  value -= step.rate * quotient(first, deviation);
}

// ---- the parameters ----

// One row of a layer's weights, or its biases, with their moments and gradients. Or a single weight, or none (columns 0).
struct WeightRow {
  int first_number;  // offset of the row in a gradient
  float* weights;
  float* first;
  float* second;
  const float* gradients;
  int columns;
  bf16* rounded;     // its place in `matrices`, of a single weight
};
DEVICE WeightRow weight_row(const Update& call, const int e) {
  WeightRow found;
  visit_row(e, [&](auto layer, const int row, const int first_number) INLINED {
    typedef decltype(layer) Here;
    const bool biases = row == Here::OUT;
    const int tensor = 2 * Here::NUMBER + biases;
    const size_type begin = biases ? 0 : (size_type)row * Here::IN;
    found = {first_number, call.weights[tensor] + begin, call.first[tensor] + begin, call.second[tensor] + begin,
             call.total + first_number, biases ? Here::OUT : Here::IN, nullptr};
  });
  return found;
}

constexpr int ALIGNED = 8;  // of matrices for a library, in entries
constexpr int aligned(const int n) { return (n + ALIGNED - 1) / ALIGNED * ALIGNED; }

// The weight of number i of a gradient, if i < until and it is no padding. FIRST, MATRIX: where Here's gradient and matrix begin.
template <class Here = Layer<0, 0>, int FIRST = 0, int MATRIX = 0>
DEVICE WeightRow weight_of(const Update& call, const int i, const int until) {
  constexpr int BIASES = Here::OUT * Here::IN_PAD, ACROSS = aligned(Here::IN), ROUNDED_BIASES = MATRIX + aligned(Here::OUT) * ACROSS;
  constexpr int END = FIRST + BIASES + Here::OUT_PAD;
  if constexpr (Here::NUMBER + 1 < TOWERS * LAYERS) {
    if (i >= END) return weight_of<typename Here::Next, END, ROUNDED_BIASES + aligned(Here::OUT)>(call, i, until);
  }
  const bool biases = i - FIRST >= BIASES;
  const int row = biases ? 0 : (i - FIRST) / Here::IN_PAD, column = i - FIRST - (biases ? BIASES : row * Here::IN_PAD);
  const int tensor = 2 * Here::NUMBER + biases, at = row * Here::IN + column, columns = biases ? Here::OUT : Here::IN;
  bf16* const rounded = call.matrices + (biases ? ROUNDED_BIASES : MATRIX + row * ACROSS) + column;
  return {i, call.weights[tensor] + at, call.first[tensor] + at, call.second[tensor] + at, call.total + i,
          i < until && column < columns, call.matrices == nullptr ? nullptr : rounded};
}

// One parameter with its moments and its gradient.
struct Weight {
  float value, first, second, gradient;
  DEVICE void load(const WeightRow& row, const int k) {
    value = row.weights[k];
    first = row.first[k];
    second = row.second[k];
  }
  DEVICE void load_gradient(const WeightRow& row, const int k) { gradient = row.gradients[k]; }
  DEVICE void take_step(const WeightRow& row, const int k, const AdamStep& step) {
    descend(value, first, second, gradient, step);
    row.first[k] = first;
    row.second[k] = second;
    row.weights[k] = value;
  }
};

// ---- reported metrics ----

// Entries of `metric_sums` that one thread owns.
struct Report {
  static constexpr int OWN = own_count(METRICS);
  float metric[OWN];

  // Call visit(own, k) for this thread's entries. Entry k is its `own`-th one.
  template <class Visit> static DEVICE void each(const Update& call, const Team team, Visit visit) {
    UNROLL for (int own = 0; own < OWN; ++own) {  // mutant(swap <): one more iteration, past the end
      const int k = team.rank + own * TEAM;
      if (k <= call.reported) visit(own, k);
    }
  }
  DEVICE void load(const Update& call, const Team team) {
    each(call, team, [&](int own, int k) INLINED { metric[own] = call.metric_sums[k]; });
  }
  // Return the increase of entry k after a step, except for the norm. sums: reported sums of the minibatch. inverse: reciprocal
  // number of its active rows.
  static DEVICE float change(const Update& call, const int k, const float* sums, const float inverse) {
    return k == call.reported ? 1.0f : sums[k < call.norm_at ? k : k - 1] * inverse;  // mutant(swap <): the norm is reported there
  }
  // Add the metrics of a step. change(own, k) returns the increase of entry k.
  template <class Change> DEVICE void add(const Update& call, const Team team, const float norm, Change change) {
    each(call, team, [&](int own, int k) INLINED { metric[own] += k == call.norm_at ? norm : change(own, k); });
  }
  DEVICE void store(const Update& call, const Team team) const {
    each(call, team, [&](int own, int k) INLINED { call.metric_sums[k] = metric[own]; });
  }
};
