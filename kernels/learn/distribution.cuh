// distribution.cuh -- Distribution of one row's actions: log-probability, entropy, and their gradients w.r.t. the parameters.
//
// Generated: CATEGORICAL and GAUSSIAN (0 or 1), whether there are discrete heads and a Box. Constants: those of the distribution. With
// both, DISCRETE is the number of discrete heads among HEADS.
#pragma once
#include "learn/functions.cuh"
#include "generated/spaces.cuh"
#if CATEGORICAL
#include "learn/categorical.cuh"
#endif
#if GAUSSIAN
#include "learn/gaussian.cuh"
#endif

#if CATEGORICAL && GAUSSIAN
// All heads are independent. Parameters are CHOICES logits, then means and logarithms of deviations.
struct Distribution {
  typedef float Action;  // choices, then numbers before squashing
  Categorical<DISCRETE, Action> choices;
  Gaussian<HEADS - DISCRETE> numbers;
  float log_prob, entropy;

  DEVICE Distribution(float* parameters, const u8* mask, const Action* action)
      : choices(parameters, mask, action), numbers(parameters + CHOICES, nullptr, action + DISCRETE),
        log_prob(choices.log_prob + numbers.log_prob), entropy(choices.entropy + numbers.entropy) {}

  DEVICE void differentiate(float* parameters, const Action* action, const float log_prob_grad, const float entropy_grad) const {
    choices.differentiate(parameters, action, log_prob_grad, entropy_grad);
    numbers.differentiate(parameters + CHOICES, action + DISCRETE, log_prob_grad, entropy_grad);
  }
};
#elif GAUSSIAN
typedef Gaussian<HEADS> Distribution;
#else
typedef Categorical<HEADS, int> Distribution;
#endif
