// gaussian.cuh -- Gaussian heads: log-density and entropy of one row, and their gradients w.r.t. means and log-deviations.
//
// With s = (raw - mean) / deviation: d log p / d mean = s / deviation, d log p / d log deviation = s^2 - 1, d H / d log deviation =
// 1. The terms that tanh adds to both depend only on `raw`. Source: that of train/boxes.cuh.
// Constant: SQUASHED. Generated: box_low(head), box_span(head).
#pragma once
#include "learn/functions.cuh"
#include "generated/spaces.cuh"

constexpr float HALF_LOG_TWO_PI = 0.918938533f, LOG_2 = 0.693147181f;

template <int HEADS> struct Gaussian {
  typedef float Action;      // before squashing
  float log_prob, entropy;   // of all heads; nats. Squashed: the entropy is an estimate at `raw`

  // parameters: means and logarithms of deviations (2 * HEADS), which are not changed. raw: actions (HEADS) before squashing.
  DEVICE Gaussian(const float* parameters, const u8*, const Action* raw) : log_prob(0.0f), entropy(0.0f) {
    for (int head = 0; head < HEADS; ++head) {
      const float log_deviation = parameters[HEADS + head];
      const float standardized = (raw[head] - parameters[head]) * exponential(-log_deviation);
      float stretch = 0.0f;
      if constexpr (SQUASHED) {
        const float a = math::abs(raw[head]);
        stretch = 2.0f * (LOG_2 - a - logarithm(1.0f + exponential(-2.0f * a))) + logarithm(0.5f * box_span(head));
      }
      log_prob -= 0.5f * standardized * standardized + log_deviation + HALF_LOG_TWO_PI + stretch;
      entropy += log_deviation + (0.5f + HALF_LOG_TWO_PI) + stretch;
    }
  }

  // Replace the parameters by log_prob_grad * d log_prob / d parameters + entropy_grad * d entropy / d parameters.
  DEVICE void differentiate(float* parameters, const Action* raw, const float log_prob_grad, const float entropy_grad) const {
    for (int head = 0; head < HEADS; ++head) {
      const float inverse = exponential(-parameters[HEADS + head]), standardized = (raw[head] - parameters[head]) * inverse;
      parameters[head] = log_prob_grad * (standardized * inverse);
      parameters[HEADS + head] = log_prob_grad * (standardized * standardized - 1.0f) + entropy_grad;
    }
  }
};
