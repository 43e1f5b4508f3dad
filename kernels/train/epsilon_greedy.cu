// epsilon_greedy.cu -- Sample actions of one discrete head: the action of the largest value, or a random one with probability
// epsilon.
//
// Random words: purpose POLICY of random.cuh, so that an action depends only on (seed, environment, episode, elapsed, agent), epsilon
// and the values. Constant: CHOICES.
#include "drive/math.cuh"
#include "drive/random.cuh"

struct Workspace {};
struct Sample {
  int num_envs, agents;        // N, C
  int first_env, first_agent;  // global ids
  int greedy;                  // 1: no random choice
  int stride, value_stride;    // numbers from one row to the next, of the parameters and of value
  const u64* seed;             // (1)
  const Clock* clock;          // (N)
  const float* parameters;     // (N, C, CHOICES): action values
  const u8* mask;              // (N, C, CHOICES) or null: allowed choices. A row without allowed choices is not masked
  int* action;                 // (N, C)
  const float* value;          // not read
  float* value_row;            // (N, C) or null: the largest value of an allowed action
  float* log_prob;             // (N, C) or null: the value of the action
  const float* epsilon;        // (1)
};

// Values this close to the largest count as equal, as in a categorical policy. The first of them is taken.
constexpr float AS_LARGE = 1.0f / (1 << 25);

// Row (e, i) of [0, N * C).
DEVICE void sample_row(const Sample& call, const int row) {
  const int e = row / call.agents, i = row - e * call.agents;
  const float* const values = call.parameters + (size_type)row * call.stride;
  const u8* const mask = call.mask + (call.mask == nullptr ? 0 : (size_type)row * CHOICES);
  bool masked = false;
  if (call.mask != nullptr) {
    for (int k = 0; k < CHOICES; ++k) masked = masked || mask[k];
  }
  float top = -math::infinity();
  int allowed = 0;
  for (int k = 0; k < CHOICES; ++k) {
    if (masked && !mask[k]) continue;
    top = math::max(top, values[k]);
    allowed += 1;
  }
  const Clock clock = call.clock[e];
  const Random random{*call.seed, (u32)(call.first_env + e), clock.episode - 1, (u32)clock.elapsed, POLICY};
  const Random::Bits bits = random.bits(call.first_agent + i, 0);
  const bool explores = !call.greedy && Random::unit(bits.word(0)) < *call.epsilon;
  const int wanted = explores ? Random::below(bits.word(1), allowed) : 0;  // among those that qualify
  int action = 0, found = 0;
  for (int k = 0; k < CHOICES; ++k) {
    const bool qualifies = !(masked && !mask[k]) && (explores || top - values[k] <= AS_LARGE);
    if (qualifies && found == wanted) action = k;
    found += qualifies;
  }
  call.action[row] = action;
  if (call.value_row != nullptr) call.value_row[row] = top;
  if (call.log_prob != nullptr) call.log_prob[row] = values[action];
}

#include "drive/launch.cuh"
KERNEL(sample_actions, Sample, call.num_envs * call.agents, sample_row(call, e))
