// gaussian.cu -- draws the actions of a policy over a Box (boxes.cuh); and the exploration noise of a deterministic policy.
//
// Source: Uhlenbeck & Ornstein 1930, discretised as x' = x - damping * x + deviation * normal, for correlated noise.
// Random words: purpose POLICY of random.cuh. Constants: HEADS, SQUASHED; box_low(head), box_span(head) are generated.
#include "train/boxes.cuh"
#include "generated/spaces.cuh"

struct Workspace {};
struct Sample {
  int num_envs, agents;        // N, C
  int first_env, first_agent;  // global ids
  int greedy;                  // 1: the mean
  int stride, value_stride;    // numbers from one row to the next, of the parameters and of value
  const u64* seed;             // (1)
  const Clock* clock;          // (N)
  const float* parameters;     // (N, C, 2 * HEADS): means, logarithms of deviations
  float* raw;                  // (N, C, HEADS): before squashing
  float* action;               // (N, C, HEADS)
  const float* value;          // (N, C) or null: the critic's, with a stride of its own, copied to
  float* value_row;            // (N, C)
  float* log_prob;             // (N, C) or null: density of the action
};
struct Explore {
  int num_envs, agents, first_env, first_agent;
  const u64* seed;
  const Clock* clock;
  const float* noise_settings;  // (2): damping (1: independent Gaussian noise), deviation in units of half the Box's span
  const float* started;        // (1): 0 as long as actions are to be uniform
  const float* mean;           // (N, C, HEADS) in [-1, 1]
  float* noise;                // (N, C, HEADS), 0 when an episode begins
  float* action;               // (N, C, HEADS), within the bounds
};

struct Space {
  static constexpr int HEADS = ::HEADS;
  static constexpr bool SQUASHED = ::SQUASHED;
  static DEVICE float low(int head) { return box_low(head); }
  static DEVICE float span(int head) { return box_span(head); }
};

DEVICE void sample_row(const Sample& call, const int row) {
  const int e = row / call.agents, i = row - e * call.agents;
  const Clock clock = call.clock[e];
  const Random random{*call.seed, (u32)(call.first_env + e), clock.episode - 1, (u32)clock.elapsed, POLICY};
  const float log_prob = policy::draw_from_box<Space>(
      random, call.first_agent + i, call.parameters + (size_type)row * call.stride, call.greedy,
      [&](int head, float action, float raw) INLINED {
        call.raw[(size_type)row * HEADS + head] = raw;
        call.action[(size_type)row * HEADS + head] = action;
      });
  if (call.log_prob != nullptr) call.log_prob[row] = log_prob;
  if (call.value != nullptr) call.value_row[row] = call.value[(size_type)row * call.value_stride];
}

DEVICE void explore_row(const Explore& call, const int row) {
  const int e = row / call.agents, i = row - e * call.agents;
  const Clock clock = call.clock[e];
  const Random random{*call.seed, (u32)(call.first_env + e), clock.episode - 1, (u32)clock.elapsed, POLICY};
  Normals n{};
  for (int head = 0; head < HEADS; ++head) {
    const size_type at = (size_type)row * HEADS + head;
    if (head % 4 == 0) n = normals(random, call.first_agent + i, head / 4);
    const float before = clock.elapsed == 0 ? 0.0f : call.noise[at];
    const float noise = before - call.noise_settings[0] * before + call.noise_settings[1] * n.pick(head);
    call.noise[at] = noise;
    float wanted = call.mean[at] + noise;
    if (*call.started == 0.0f) wanted = 2.0f * Random::unit(random.bits(call.first_agent + i, 2048 + head).x) - 1.0f;
    call.action[at] = policy::into_box<Space>(math::clamp(wanted, -1.0f, 1.0f), head);
  }
}

#include "drive/launch.cuh"
KERNEL(sample_actions, Sample, call.num_envs * call.agents, sample_row(call, e))
KERNEL(explore, Explore, call.num_envs * call.agents, explore_row(call, e))
