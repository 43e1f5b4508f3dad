// choices.cuh -- Draw the actions of discrete heads from logits, with log-probability and entropy.
//
// Source: the inverse of the cumulative distribution. Random words: purpose POLICY of random.cuh, so that an action depends only on
// (seed, environment, episode, elapsed, agent, head) and on the logits. A Space has HEADS, LARGEST (head) and size(head).
#pragma once
#include "drive/random.cuh"
#include "drive/math.cuh"

namespace policy {

// Categorical distribution of one head, with choices [0, size), size <= LARGEST.
template <int LARGEST> struct Head {
  const float* logits;
  const u8* mask;
  int size;
  bool masked;            // whether the mask allows any choice. Otherwise it is ignored
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
      const float power = math::exp(weight[k] - top);  // unconditional: a branch would serialize the exponentials
      weight[k] = weight[k] == -math::infinity() ? 0.0f : power;
      total += weight[k];
    }
  }
  DEVICE bool allowed(int k) const { return !masked || mask[k]; }

  // Return the first choice at which the cumulative weight exceeds unit * total. It never has weight 0: unit < 1, and additions are
  // in the order of `total`, so that the sum reaches it at the last positive weight.
  DEVICE int draw(float unit) const {
    const float target = unit * total;
    float sum = 0.0f;
    int chosen = 0, last = 0;  // last: the last choice with positive weight, returned if logits are NaN
    bool found = false;
    for (int k = 0; k < LARGEST; ++k) {
      sum += weight[k];
      if (weight[k] > 0.0f) last = k;
      if (!found && sum > target) { chosen = k; found = true; }
    }
    return found ? chosen : last;
  }
  // Return the choice with the largest weight, the lowest one of equals.
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

// Draw the actions of one agent, and call take(head, action, choices) for each head. Returns the log-probability of all actions.
// logits, mask: of all heads. mask may be null. greedy: take the likeliest choices. random: a Random, or an object with its words.
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
