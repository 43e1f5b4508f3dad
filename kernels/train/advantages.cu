// advantages.cu -- generalised advantage estimation, agent by agent.
//
// Source: Schulman et al. 2016, "High-dimensional continuous control using generalized advantage estimation", eq. 11-16.
// Truncation bootstraps from the value of the final observation; termination, and an agent's leaving, from 0. All three
// cut the sum. A step that an agent was not in the game for has advantage 0 and weight 0.
// Letters: T steps, N environments, C agents, K the most truncations of one environment in T steps.
#include "drive/platform.cuh"

struct Workspace {};
struct Advantages {
  int num_envs, agents, steps, slots;  // N, C, T, K
  const float* gamma;        // (1)
  const float* gae_lambda;   // (1)
  const float* reward_scale;  // (1)
  const float* reward;       // (T, N, C)
  const float* value;        // (T + 1, N, C) of the observation before each step, and after the last
  const float* final_value;  // (K, N, C) of the final observations at `truncated_at`, or null if nothing is truncated
  const u8* terminated;      // (T, N)
  const u8* truncated;       // (T, N)
  const u8* active;          // (T, N, C) or null: in the game before the step
  const u8* left;            // (T, N, C) or null: left the game in the step
  float* advantage;          // (T, N, C)
  float* returns;            // (T, N, C): advantage + value, what the critic is to learn
};
struct Truncations {
  int num_envs, steps, slots;
  const u8* truncated;       // (T, N)
  i64* truncated_at;         // (K, N): steps of an environment's truncations, ascending, then 0
};

// Row (e, i) of [0, N * C).
DEVICE void estimate_row(const Advantages& call, const int row) {
  const int e = row / call.agents;
  const size_type envs = call.num_envs, rows = envs * call.agents;
  const float gamma = *call.gamma, lambda = *call.gae_lambda, scale = *call.reward_scale;
  int slot = 0;
  if (call.final_value != nullptr) {
    for (int t = 0; t < call.steps; ++t) slot += call.truncated[t * envs + e];
  }
  float advantage = 0.0f, next_value = call.value[call.steps * rows + row];
  for (int t = call.steps - 1; t >= 0; --t) {
    const size_type at = t * rows + row, step = t * envs + e;
    const float value = call.value[at];
    const bool gone = call.left != nullptr && call.left[at];
    float next = next_value;
    if (call.truncated[step]) {
      slot -= 1;
      next = slot >= 0 && slot < call.slots ? call.final_value[slot * rows + row] : 0.0f;
    }
    if (call.terminated[step] || gone) next = 0.0f;
    const bool cut = call.terminated[step] || call.truncated[step] || gone;
    const bool counts = call.active == nullptr || call.active[at];
    const float error = scale * call.reward[at] + gamma * next - value;
    advantage = counts ? error + (cut ? 0.0f : gamma * lambda * advantage) : 0.0f;
    call.advantage[at] = advantage;
    call.returns[at] = advantage + value;
    next_value = value;
  }
}

DEVICE void find_truncations(const Truncations& call, const int e) {
  int slot = 0;
  for (int t = 0; t < call.steps && slot < call.slots; ++t) {
    if (call.truncated[(size_type)t * call.num_envs + e]) call.truncated_at[(size_type)slot++ * call.num_envs + e] = t;
  }
  for (; slot < call.slots; ++slot) call.truncated_at[(size_type)slot * call.num_envs + e] = 0;
}

#include "drive/launch.cuh"
KERNEL(advantages, Advantages, call.num_envs * call.agents, estimate_row(call, e))
KERNEL(truncations, Truncations, call.num_envs, find_truncations(call, e))
