// choices.cuh -- Draw the actions of discrete heads from logits, with log-probability and entropy.
//
// Source: the inverse of the cumulative distribution. Random words: purpose POLICY of random.cuh, so that an action depends only on
// (seed, environment, episode, elapsed, agent, head) and on the logits. A Space has HEADS, LARGEST (head) and size(head).
#pragma once
#include "drive/random.cuh"
#include "drive/math.cuh"

namespace policy {

// One head: its choices are [0, size), size at most LARGEST.
template <int LARGEST> struct Head {
  const float* logits;
  const u8* mask;
  int size;
  bool masked;            // whether the mask says anything
  float top;              // the largest allowed logit
  float total;            // sum of the weights
  float weight[LARGEST];  // exp(logit - top), 0 where masked

  DEVICE Head(const float* logits, const u8* mask, int size)
      : logits(logits), mask(mask), size(size), masked(false), top(-math::infinity()), total(0.0f) {
    if (mask != nullptr) {
      for (int k = 0; k < size; ++k) masked = masked || mask[k];
    }
    for (int k = 0; k < LARGEST; ++k) weight[k] = k < size && allowed(k) ? logits[k] : -math::infinity();
    for (int k = 0; k < LARGEST; ++k) top = math::max(top, weight[k]);
    for (int k = 0; k < LARGEST; ++k) {
      const float power = math::exp(weight[k] - top);  // in any case: a branch would let a thread compute one after the other
      weight[k] = weight[k] == -math::infinity() ? 0.0f : power;
      total += weight[k];
    }
  }
  DEVICE bool allowed(int k) const { return !masked || mask[k]; }

  // The first choice at which the cumulative weight exceeds unit * total. unit < 1, and the last positive weight brings
  // the sum to `total` in the same order of additions, so a choice of weight 0 is never the first.
  DEVICE int draw(float unit) const {
    const float target = unit * total;
    float sum = 0.0f;
    int chosen = 0, last = 0;  // last: of positive weight, taken if the logits are not numbers
    bool found = false;
    for (int k = 0; k < LARGEST; ++k) {
      sum += weight[k];
      if (weight[k] > 0.0f) last = k;
      if (!found && sum > target) { chosen = k; found = true; }
    }
    return found ? chosen : last;
  }
  DEVICE int likeliest() const {
    int best = 0;
    float most = -1.0f;
    for (int k = 0; k < LARGEST; ++k) {
      if (weight[k] > most) { most = weight[k]; best = k; }
    }
    return best;
  }
  DEVICE float log_prob(int k) const { return logits[k] - top - math::log(total); }
  DEVICE float entropy() const {
    float sum = 0.0f;
    for (int k = 0; k < LARGEST; ++k) {
      if (weight[k] > 0.0f) sum += weight[k] * (logits[k] - top);
    }
    return math::log(total) - sum / total;
  }
};

// take(head, action, choices) for each head of one agent, from logits of all heads; `mask` may be null. `greedy`: the likeliest
// choice, the lower of equals. `random` is a Random, or what has its words. Returns the natural logarithm of their probability.
template <class Space, class Words, class Take>
DEVICE float draw_choices(const Words& random, const int agent, const float* logits, const u8* mask, const bool greedy,
                          Take take) {
  float log_prob = 0.0f;
  Random::Bits bits{};
  for (int head = 0; head < Space::HEADS; ++head) {
    const Head<Space::LARGEST> choices(logits, mask, Space::size(head));
    if (head % 4 == 0) bits = random.bits(agent, head / 4);  // mutant(dropped condition): more work, same result
    const int action = greedy ? choices.likeliest() : choices.draw(Random::unit(bits.word(head)));
    take(head, action, choices);
    log_prob += choices.log_prob(action);
    logits += choices.size;
    if (mask != nullptr) mask += choices.size;
  }
  return log_prob;
}

}  // namespace policy
