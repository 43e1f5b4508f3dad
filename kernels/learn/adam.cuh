// adam.cuh -- what a step takes: the gradient that is known, Adam's averages and their corrections, and one weight's step.
//
// Source: Kingma & Ba 2015, "Adam: a method for stochastic optimization", algorithm 1, with epsilon outside of the root.
// Bias corrections are followed by the averages' own recursions, of an average of ones, so that they need no powers and
// correct what rounding does, too. Where `step` is another one than they were followed to, as in a checkpoint that was read,
// they are followed again from the beginning.
// Constants: those of layers.cuh.
#pragma once
#include "learn/layers.cuh"

constexpr float FIRST_RATE = 0.1f, SECOND_RATE = 0.001f, EPSILON = 1e-5f;  // 1 - beta of each average

enum Verdict { SKIPPED, SOUND, UNSOUND };
// What is known of a step before the gradients' norm is.
struct Prospect {
  int verdict;  // SOUND: it happens if the norm is finite
  float rate;   // learning rate over the first average's correction
  float root;   // of the second average's correction
};
// The averages of ones after `step` steps.
struct Corrections { float first, second, step; };

struct Update {
  int pieces, parts;           // of `partials`; P, by which the blocks' sums are added: at most MOST_PARTS
  int strips;                  // that one team adds up; strips * parts is at most MOST_PARTS
  int shares;                  // by how many teams the rows of weights are shared
  int epoch_ends;              // 1: this is an epoch's last minibatch
  int iteration_ends;          // 1: and the last one of all
  int reported;                // numbers that `metric_sums` has before the last
  int norm_at;                 // which of them is the gradients' norm
  float target_kl;             // 0: none
  const float* inverse;        // (1): one over the minibatch's rows in the game
  const float* partials;       // (pieces, GRADIENT_FLOATS)
  float* total;                // (GRADIENT_FLOATS)
  float* squares;              // (STRIPS - 1): sums of the squares of LANES numbers of `total`
  Prospect* prospect;          // (1)
  Corrections* corrections;    // (1)
  const float* learning_rate;  // (1)
  const float* ent_coef;       // (1)
  const float* vf_coef;        // (1)
  const float* max_grad_norm;  // (1)
  float* skip;                 // (1): 1: no step until the next iteration
  float* bad;                  // (1): 1: a loss or gradient was not finite; no step ever
  i64* iteration;              // (1): iterations so far
  float* metric_sums;          // (reported + 1): the last one counts
  float* step;                 // (TENSORS): steps so far, all equal
  float* copies;               // or null: nobody reads them
  float* weights[TENSORS];     // the network's own memory, (OUT, IN) or (OUT)
  float* first[TENSORS];       // Adam's averages, of the same shapes
  float* second[TENSORS];
};

DEVICE bool is_finite(float x) { return (math::bits(x) & 0x7f800000u) != 0x7f800000u; }

// The corrections of step `step`, from those of the step before if `made` are they.
DEVICE Corrections corrections_of(Corrections made, const float step) {
  // equal(dropped condition, swap +, constant 1): corrections start over, same bits
  if (made.step + 1.0f != step) made = {0.0f, 0.0f, 0.0f};
  while (made.step < step) {
    const Corrections before = made;
    made.first = math::fma(FIRST_RATE, 1.0f - made.first, made.first);
    made.second = math::fma(1.0f - SECOND_RATE, made.second, SECOND_RATE);
    made.step += 1.0f;
    // equal(swap == 1): more work, same result
    if (made.first == before.first && made.second == before.second) made.step = step;  // they change no more
  }
  return made;
}

// What is decided for all weights of one step, by every team alike.
struct Decision {
  int verdict;
  float norm;   // of the gradients
  float scale;  // of the gradients
  float rate, root;
};

// Where one row of the weights, or of biases, and what goes with it are.
struct WeightRow {
  int first_number;  // its place in a gradient
  float* weights;
  float* first;
  float* second;
  const float* gradients;
  int columns;
};
DEVICE WeightRow weight_row(const Update& call, const int e) {
  WeightRow found;
  visit_row(e, [&](auto layer, const int row, const int first_number) INLINED {
    typedef decltype(layer) Here;
    const bool biases = row == Here::OUT;
    const int tensor = 2 * Here::NUMBER + biases;
    const size_type begin = biases ? 0 : (size_type)row * Here::IN;
    found = {first_number, call.weights[tensor] + begin, call.first[tensor] + begin, call.second[tensor] + begin,
             call.total + first_number, biases ? Here::OUT : Here::IN};
  });
  return found;
}

// One number of them.
struct Weight {
  float value, first, second, gradient;
  DEVICE void load(const WeightRow& row, const int k) {
    value = row.weights[k];
    first = row.first[k];
    second = row.second[k];
  }
  DEVICE void load_gradient(const WeightRow& row, const int k) { gradient = row.gradients[k]; }
  DEVICE void descend(const Decision& decision) {
    const float scaled = gradient * decision.scale;
    first = math::fma(FIRST_RATE, scaled - first, first);
    second = math::fma(1.0f - SECOND_RATE, second, SECOND_RATE * scaled * scaled);
    value -= decision.rate * (first / (math::sqrt(second) / decision.root + EPSILON));
  }
  DEVICE void store(const WeightRow& row, const int k) const {
    row.first[k] = first;
    row.second[k] = second;
    row.weights[k] = value;
  }
};
