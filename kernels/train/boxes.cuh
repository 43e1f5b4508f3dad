// boxes.cuh -- Draw actions of a Box from means and log standard deviations: Gaussian, or Gaussian squashed by tanh into the
// bounds.
//
// Source: Box & Muller 1958 for the normal numbers, and Haarnoja et al. 2018, appendix C, for the density after tanh.
// Random numbers: purpose POLICY of random.cuh. A Space has HEADS, SQUASHED, low(head) and span(head).
#pragma once
#include "train/normals.cuh"

namespace policy {

constexpr float HALF_LOG_TWO_PI = 0.918938533f, LOG_2 = 0.693147181f;

// log(1 - tanh(x)^2), finite even if tanh(x) rounds to 1.
DEVICE float log_slope_of_tanh(float x) {
  const float a = math::abs(x);
  return 2.0f * (LOG_2 - a - math::log(1.0f + math::exp(-2.0f * a)));
}

// Map [-1, 1] to the bounds of one head.
template <class Space> DEVICE float into_box(float x, int head) {
  return Space::low(head) + 0.5f * Space::span(head) * (x + 1.0f);
}

// Draw the actions of one agent, and call take(head, action, raw) for each head. raw is the action before squashing. Returns the
// log-density of all actions. mean: HEADS means, then HEADS log standard deviations. greedy: take the means. first: index of the
// first random draw.
template <class Space, class Take>
DEVICE float draw_from_box(const Random& random, const int agent, const float* mean, const bool greedy, Take take,
                           const int first = 0) {
  const float* const log_deviation = mean + Space::HEADS;
  float log_prob = 0.0f;
  Normals n{};
  for (int head = 0; head < Space::HEADS; ++head) {
    if (head % 4 == 0) n = normals(random, agent, first + head / 4);  // mutant(dropped condition): more work, same result
    const float normal = greedy ? 0.0f : n.pick(head);
    const float raw = mean[head] + math::exp(log_deviation[head]) * normal;
    take(head, Space::SQUASHED ? into_box<Space>(math::tanh(raw), head) : raw, raw);
    const float delta = (raw - mean[head]) * math::exp(-log_deviation[head]);  // in standard deviations
    float stretch = 0.0f;
    if (Space::SQUASHED) stretch = log_slope_of_tanh(raw) + math::log(0.5f * Space::span(head));
    log_prob -= 0.5f * delta * delta + log_deviation[head] + HALF_LOG_TWO_PI + stretch;
  }
  return log_prob;
}

}  // namespace policy
