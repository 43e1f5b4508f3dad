// greedy.cuh -- Epsilon-greedy action of one discrete head from its action values.
//
// Random numbers: purpose POLICY of random.cuh, so that an action depends only on (seed, environment, episode, elapsed, agent), epsilon
// and the values.
#pragma once
#include "drive/math.cuh"
#include "drive/random.cuh"

namespace policy {

// Values this close to the largest count as equal, as in a categorical policy. The first of them is taken.
constexpr float AS_LARGE = 1.0f / (1 << 25);

// Action values of one row. A mask without allowed choices is ignored.
template <int CHOICES> struct ActionValues {
  const float* values;
  const u8* mask;
  bool masked;
  float top;  // largest value of an allowed action
  int count;  // number of allowed actions

  DEVICE ActionValues(const float* values, const u8* mask)
      : values(values), mask(mask), masked(false), top(-math::infinity()), count(0) {
    if (mask != nullptr) {
      for (int k = 0; k < CHOICES; ++k) masked = masked || mask[k];
    }
    for (int k = 0; k < CHOICES; ++k) {
      if (!allowed(k)) continue;
      top = math::max(top, values[k]);  // mutant(swapped arguments): the same unless a value is NaN
      count += 1;
    }
  }
  DEVICE bool allowed(const int k) const { return !masked || mask[k]; }

  // Action of an agent. greedy: no random choice. random: a Random, or an object with its words.
  template <class Words> DEVICE int draw(const Words& random, const int agent, const bool greedy, const float epsilon) const {
    const Random::Bits bits = random.bits(agent, 0);
    const bool explores = !greedy && Random::unit(bits.word(0)) < epsilon;
    const int wanted = explores ? Random::below(bits.word(1), count) : 0;  // among the actions that qualify
    int action = 0, found = 0;
    for (int k = 0; k < CHOICES; ++k) {
      const bool qualifies = allowed(k) && (explores || top - values[k] <= AS_LARGE);
      if (qualifies && found == wanted) action = k;
      found += qualifies;
    }
    return action;
  }
};

}  // namespace policy
