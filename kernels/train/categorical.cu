// categorical.cu -- draws the actions of a policy with one or more discrete heads, with log-probability and entropy.
//
// Source: the inverse of the cumulative distribution. Random words: purpose POLICY of random.cuh, so that an action
// depends on (seed, environment, episode, elapsed, agent, head) and on the logits alone.
// Constants: HEADS, CHOICES (the sum of all heads' sizes); head_size(head) is generated.
#include "drive/random.cuh"
#include "drive/math.cuh"
#include "generated/spaces.cuh"

struct Workspace {};
struct Sample {
  int num_envs, agents;        // N, C
  int first_env, first_agent;  // global ids
  int greedy;                  // 1: the likeliest choice, the lower of equals
  const u64* seed;             // (1)
  const Clock* clock;          // (N)
  const float* logits;         // (N, C, CHOICES)
  const u8* mask;              // (N, C, CHOICES) or null: which choices are allowed; a head that allows none is not masked
  int* action;                 // (N, C, HEADS), in [0, head_size)
  float* log_prob;             // (N, C) or null, natural logarithm, summed over heads
  float* entropy;              // (N, C) or null, in nats, likewise
};

// One head: its choices are [0, size).
struct Head {
  const float* logits;
  const u8* mask;
  int size;
  bool masked;   // whether the mask says anything
  float top;     // the largest allowed logit
  float total;   // sum of exp(logit - top)

  DEVICE Head(const float* logits, const u8* mask, int size) : logits(logits), mask(mask), size(size), masked(false), top(0.0f), total(0.0f) {
    if (mask != nullptr) {
      for (int k = 0; k < size; ++k) masked = masked || mask[k];
    }
    top = -math::infinity();
    for (int k = 0; k < size; ++k) top = allowed(k) ? math::max(top, logits[k]) : top;
    for (int k = 0; k < size; ++k) total += weight(k);
  }
  DEVICE bool allowed(int k) const { return !masked || mask[k]; }
  DEVICE float weight(int k) const { return allowed(k) ? math::exp(logits[k] - top) : 0.0f; }

  // The first choice at which the cumulative weight exceeds unit * total. unit < 1, and the last positive weight brings
  // the sum to `total` in the same order of additions, so a choice of weight 0 is never the first.
  DEVICE int draw(float unit) const {
    const float target = unit * total;
    float sum = 0.0f;
    int last = 0;  // of positive weight: taken if the logits are not numbers
    for (int k = 0; k < size; ++k) {
      const float w = weight(k);
      sum += w;
      if (w > 0.0f) last = k;
      if (sum > target) return last;
    }
    return last;
  }
  DEVICE int likeliest() const {
    int best = -1;
    for (int k = 0; k < size; ++k) {
      if (allowed(k) && (best < 0 || logits[k] > logits[best])) best = k;
    }
    return best;
  }
  DEVICE float log_prob(int k) const { return logits[k] - top - math::log(total); }
  DEVICE float entropy() const {
    float sum = 0.0f;
    for (int k = 0; k < size; ++k) {
      const float w = weight(k);
      if (w > 0.0f) sum += w * (logits[k] - top);
    }
    return math::log(total) - sum / total;
  }
};

// Row (e, i) of [0, N * C).
DEVICE void sample_row(const Sample& call, const int row) {
  const int e = row / call.agents, i = row - e * call.agents;
  const Clock clock = call.clock[e];
  const Random random{*call.seed, (u32)(call.first_env + e), clock.episode - 1, (u32)clock.elapsed, POLICY};
  const float* logits = call.logits + (size_type)row * CHOICES;
  const u8* mask = call.mask == nullptr ? nullptr : call.mask + (size_type)row * CHOICES;
  float log_prob = 0.0f, entropy = 0.0f;
  Random::Bits bits{};
  for (int head = 0; head < HEADS; ++head) {
    const Head choices(logits, mask, head_size(head));
    if (head % 4 == 0) bits = random.bits(call.first_agent + i, head / 4);
    const int action = call.greedy ? choices.likeliest() : choices.draw(Random::unit(bits.word(head)));
    call.action[(size_type)row * HEADS + head] = action;
    log_prob += choices.log_prob(action);
    if (call.entropy != nullptr) entropy += choices.entropy();
    logits += choices.size;
    if (mask != nullptr) mask += choices.size;
  }
  if (call.log_prob != nullptr) call.log_prob[row] = log_prob;
  if (call.entropy != nullptr) call.entropy[row] = entropy;
}

#include "drive/launch.cuh"
KERNEL(sample_actions, Sample, call.num_envs * call.agents, sample_row(call, e))
