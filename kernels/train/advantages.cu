// advantages.cu -- generalised advantage estimation, agent by agent.
//
// Source: Schulman et al. 2016, "High-dimensional continuous control using generalized advantage estimation", eq. 11-16.
// Truncation bootstraps from the value of the final observation; termination, and an agent's leaving, from 0. All three
// cut the sum. A step that an agent was not in the game for has advantage 0 and weight 0.
// Letters: T steps, N environments, C agents, K the most truncations of one environment in T steps.
#include "drive/math.cuh"

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

// What AT_ONCE steps of one agent say, the last one first. All is loaded before any of it is looked at: nothing waits for a
// store, which might have changed what is loaded, nor for what is loaded before.
constexpr int MOST_AT_ONCE = 16, FEW_AT_ONCE = 4;  // the second: of rollouts that have no more steps
template <int AT_ONCE> struct Steps {
  float value[AT_ONCE], reward[AT_ONCE];
  u8 terminated[AT_ONCE], truncated[AT_ONCE], left[AT_ONCE], active[AT_ONCE];

  // Step t is the k-th; those before the first are as that one, and not asked for.
  DEVICE void load(const Advantages& call, const int row, const int e, const int end) {
    const size_type envs = call.num_envs, rows = envs * call.agents;
    const auto step = [&](int k) INLINED { return (size_type)math::max(end - 1 - k, 0); };
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      value[k] = call.value[step(k) * rows + row];
      reward[k] = call.reward[step(k) * rows + row];
      terminated[k] = call.terminated[step(k) * envs + e];
      truncated[k] = call.truncated[step(k) * envs + e];
      left[k] = 0;
      active[k] = 1;
    }
    if (call.left != nullptr) { UNROLL for (int k = 0; k < AT_ONCE; ++k) left[k] = call.left[step(k) * rows + row]; }
    if (call.active != nullptr) { UNROLL for (int k = 0; k < AT_ONCE; ++k) active[k] = call.active[step(k) * rows + row]; }
  }
};

// Row (e, i) of [0, N * C).
template <int AT_ONCE> DEVICE void estimate_row(const Advantages& call, const int row) {
  const int e = row / call.agents;
  const size_type envs = call.num_envs, rows = envs * call.agents;
  const float gamma = *call.gamma, lambda = *call.gae_lambda, scale = *call.reward_scale;
  int slot = 0;
  if (call.final_value != nullptr) {
    UNROLL_TIMES(16) for (int t = 0; t < call.steps; ++t) slot += call.truncated[t * envs + e];
  }
  float advantage = 0.0f, next_value = call.value[call.steps * rows + row];
  for (int end = call.steps; end > 0; end -= AT_ONCE) {
    Steps<AT_ONCE> steps;
    steps.load(call, row, e, end);
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      if (k >= end) continue;
      const int t = end - 1 - k;
      const float value = steps.value[k];
      float next = next_value;
      if (steps.truncated[k]) {
        slot -= 1;
        next = slot >= 0 && slot < call.slots ? call.final_value[slot * rows + row] : 0.0f;
      }
      if (steps.terminated[k] || steps.left[k]) next = 0.0f;
      const bool cut = steps.terminated[k] || steps.truncated[k] || steps.left[k];
      const float error = scale * steps.reward[k] + gamma * next - value;
      advantage = steps.active[k] ? error + (cut ? 0.0f : gamma * lambda * advantage) : 0.0f;
      call.advantage[t * rows + row] = advantage;
      call.returns[t * rows + row] = advantage + value;
      next_value = value;
    }
  }
}

DEVICE void find_truncations(const Truncations& call, const int e) {
  int slot = 0;
  constexpr int AT_ONCE = MOST_AT_ONCE;
  for (int first = 0; first < call.steps; first += AT_ONCE) {
    u8 truncated[AT_ONCE];
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      truncated[k] = first + k < call.steps ? call.truncated[(size_type)(first + k) * call.num_envs + e] : 0;
    }
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      if (truncated[k] && slot < call.slots) call.truncated_at[(size_type)slot++ * call.num_envs + e] = first + k;
    }
  }
  for (; slot < call.slots; ++slot) call.truncated_at[(size_type)slot * call.num_envs + e] = 0;
}

DEVICE void estimate(const Advantages& call, const int row) {
  if (call.steps <= FEW_AT_ONCE) estimate_row<FEW_AT_ONCE>(call, row);
  else estimate_row<MOST_AT_ONCE>(call, row);
}

#include "drive/launch.cuh"
KERNEL(advantages, Advantages, call.num_envs * call.agents, estimate(call, e))
KERNEL(truncations, Truncations, call.num_envs, find_truncations(call, e))
