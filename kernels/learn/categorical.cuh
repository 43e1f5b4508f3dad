// categorical.cuh -- Discrete heads: log-probability and entropy of one row, and their gradients w.r.t. the logits.
//
// With p = softmax(z) over the allowed choices, H = -sum p log p: d log p[a] / dz[k] = (k == a) - p[k] and
// dH / dz[k] = -p[k] (log p[k] + H). Operations are in the order of train/choices.cuh. As long as a policy has not changed, its
// log-probabilities therefore equal those of the draw, to the bit if not APPROXIMATE. Constant: CHOICES (of all heads). Generated:
// head_size(head).
#pragma once
#include "learn/functions.cuh"
#include "generated/spaces.cuh"

template <int HEADS, class Number> struct Categorical {
  typedef Number Action;
  float log_prob, entropy;   // of all heads; nats
  float head_entropy[HEADS];

  // Replace logits (CHOICES) by log-probabilities. They are -inf where `mask` (CHOICES, or null) is 0, unless it is 0 for a whole
  // head.
  DEVICE Categorical(float* logits, const u8* mask, const Action* action) : log_prob(0.0f), entropy(0.0f) {
    for (int head = 0; head < HEADS; ++head) {
      const int size = head_size(head);
      bool masked = false;
      if (mask != nullptr) {
        for (int k = 0; k < size; ++k) masked = masked || mask[k];
      }
      float top = -math::infinity(), total = 0.0f, sum = 0.0f;
      for (int k = 0; k < size; ++k) {
        if (masked && !mask[k]) logits[k] = -math::infinity();
        top = math::max(top, logits[k]);  // mutant(swapped arguments): commutes, NaN or not
      }
      for (int k = 0; k < size; ++k) {
        const float below = logits[k] - top, weight = exponential(below);
        total += weight;
        if (weight > 0.0f) sum += weight * below;
        logits[k] = below;
      }
      const float log_total = logarithm(total);
      for (int k = 0; k < size; ++k) logits[k] -= log_total;
      log_prob += logits[(int)action[head]];
      head_entropy[head] = log_total - quotient(sum, total);
      entropy += head_entropy[head];
      logits += size;
      if (mask != nullptr) mask += size;
    }
  }

  // Replace log-probabilities by log_prob_grad * d log_prob / dz + entropy_grad * d entropy / dz.
  DEVICE void differentiate(float* log_p, const Action* action, const float log_prob_grad, const float entropy_grad) const {
    for (int head = 0; head < HEADS; ++head) {
      const int size = head_size(head);
      for (int k = 0; k < size; ++k) {
        const float p = exponential(log_p[k]), likelier = (k == (int)action[head] ? 1.0f : 0.0f) - p;
        const float entropy_term = p == 0.0f ? 0.0f : p * (log_p[k] + head_entropy[head]);  // 0 * -inf is not 0
        log_p[k] = log_prob_grad * likelier - entropy_grad * entropy_term;
      }
      log_p += size;
    }
  }
};
