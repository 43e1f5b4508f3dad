// categorical.cu -- draws the actions of a policy with one or more discrete heads, with log-probability and entropy.
//
// Source: the inverse of the cumulative distribution. Random words: purpose POLICY of random.cuh, so that an action
// depends on (seed, environment, episode, elapsed, agent, head) and on the logits alone.
// Constants: HEADS, CHOICES (the sum of all heads' sizes), LARGEST (head); head_size(head) is generated.
#include "drive/random.cuh"
#include "drive/math.cuh"
#include "generated/spaces.cuh"

struct Workspace {};
struct Sample {
  int num_envs, agents;        // N, C
  int first_env, first_agent;  // global ids
  int greedy;                  // 1: the likeliest choice, the lower of equals
  int stride, value_stride;    // numbers from one row to the next, of the parameters and of value
  const u64* seed;             // (1)
  const Clock* clock;          // (N)
  const float* parameters;     // (N, C, CHOICES): logits
  const u8* mask;              // (N, C, CHOICES) or null: which choices are allowed; a head that allows none is not masked
  int* action;                 // (N, C, HEADS), in [0, head_size)
  const float* value;          // (N, C) or null: the critic's, with a stride of its own, copied to
  float* value_row;            // (N, C)
  float* log_prob;             // (N, C) or null, natural logarithm, summed over heads
  float* entropy;              // (N, C) or null, in nats, likewise
};

// One head: its choices are [0, size), size at most LARGEST.
struct Head {
  const float* logits;
  const u8* mask;
  int size;
  bool masked;            // whether the mask says anything
  float top;              // the largest allowed logit
  float total;            // sum of the weights
  float weight[LARGEST];  // exp(logit - top), 0 where masked

  DEVICE Head(const float* logits, const u8* mask, int size) : logits(logits), mask(mask), size(size), masked(false), top(-math::infinity()), total(0.0f) {
    if (mask != nullptr) {
      for (int k = 0; k < size; ++k) masked = masked || mask[k];
    }
    for (int k = 0; k < LARGEST; ++k) weight[k] = k < size && allowed(k) ? logits[k] : -math::infinity();
    for (int k = 0; k < LARGEST; ++k) top = math::max(top, weight[k]);
    for (int k = 0; k < LARGEST; ++k) {
      weight[k] = weight[k] == -math::infinity() ? 0.0f : math::exp(weight[k] - top);
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

// Row (e, i) of [0, N * C).
DEVICE void sample_row(const Sample& call, const int row) {
  const int e = row / call.agents, i = row - e * call.agents;
  const Clock clock = call.clock[e];
  const Random random{*call.seed, (u32)(call.first_env + e), clock.episode - 1, (u32)clock.elapsed, POLICY};
  const float* logits = call.parameters + (size_type)row * call.stride;
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
  if (call.value != nullptr) call.value_row[row] = call.value[(size_type)row * call.value_stride];
  if (call.entropy != nullptr) call.entropy[row] = entropy;
}

#include "drive/launch.cuh"
KERNEL(sample_actions, Sample, call.num_envs * call.agents, sample_row(call, e))
