// gaussian.cu -- Draw the actions of a policy over a Box, and the exploration noise of a deterministic policy.
//
// Source: Uhlenbeck & Ornstein 1930, discretized as x' = x - damping * x + standard deviation * normal, for correlated noise.
// Random numbers: purpose POLICY of random.cuh. Constants: those of sample_box.cuh.
#include "train/sample_box.cuh"

struct Workspace {};
struct Explore {
  int num_envs, agents, first_env, first_agent;
  const u64* seed;
  const Clock* clock;
  const float* noise_settings;  // (2): damping (1: independent Gaussian noise), standard deviation in units of half the Box's span
  const float* started;        // (1): 0 before learning starts, while actions are uniform
  const float* mean;           // (N, C, HEADS) in [-1, 1]
  float* noise;                // (N, C, HEADS), 0 at the beginning of an episode
  float* action;               // (N, C, HEADS), within the bounds
};

DEVICE void explore_row(const Explore& call, const int row) {
  const int e = row / call.agents, i = row - e * call.agents;
  const Clock clock = call.clock[e];
  const Random random{*call.seed, (u32)(call.first_env + e), clock.episode - 1, (u32)clock.elapsed, POLICY};
  Normals n{};
  for (int head = 0; head < HEADS; ++head) {
    const size_type at = (size_type)row * HEADS + head;
    if (head % 4 == 0) n = normals(random, call.first_agent + i, head / 4);  // mutant(dropped condition): more work, same result
    const float before = clock.elapsed == 0 ? 0.0f : call.noise[at];
    const float noise = before - call.noise_settings[0] * before + call.noise_settings[1] * n.pick(head);
    call.noise[at] = noise;
    float wanted = call.mean[at] + noise;
    if (*call.started == 0.0f) wanted = 2.0f * Random::unit(random.bits(call.first_agent + i, 2048 + head).x) - 1.0f;
    // mutant(swapped arguments 1): commutes, except NaN
    call.action[at] = policy::into_box<Space>(math::clamp(wanted, -1.0f, 1.0f), head);
  }
}

#include "drive/launch.cuh"
KERNEL(sample_actions, Sample, call.num_envs * call.agents, sample_row(call, e, call.parameters + (size_type)e * call.stride))
KERNEL(explore, Explore, call.num_envs * call.agents, explore_row(call, e))
