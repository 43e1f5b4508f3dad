// advantages.cu -- Generalized advantage estimation (GAE). One thread scans the steps of one agent backwards.
//
// Source: Schulman et al. 2016, "High-dimensional continuous control using generalized advantage estimation", eq. 11-16.
//
// For each step t of an agent:
//   delta[t]     = reward_scale * reward[t] + gamma * next_value - value[t]
//   advantage[t] = delta[t] + gamma * gae_lambda * advantage[t + 1]
//   returns[t]   = advantage[t] + value[t]
// The first step of an episode never adds to the advantage of the step before it. next_value is
//   value[t + 1]                       within an episode and at the end of the rollout
//   the value of the final observation after a truncation
//   0                                  after a termination, or if the agent leaves
//
// Inactive steps. A policy learns only from active steps. The rewards of inactive steps belong to the last active step before them
// in the episode, and next_value of this step is the value of the agent's next active step. There are three cases:
//   Pause within the rollout  The critic also learns from the inactive steps. Their target is the sum of rewards until the next
//                             active step, plus the value there.
//   Pause across rollouts     The last active step bootstraps from the value of the last observation, and is copied to the `held_`
//                             arrays. Each later rollout that begins before the next active step learns from the held step again,
//                             with all rewards so far. The step takes row 0, whose own step is inactive.
//   Exit                      If the agent leaves, next_value is 0, and no inactive step is learnt from. If rewards have ever come
//                             after an agent left, its leaving counts as a pause from then on.
//
// Kernels, launched by OnPolicyLearner.estimate (cupydrive/algorithms/on_policy.py):
//   truncations              one thread per environment. Lists the steps of truncations, before the values of their final
//                            observations are computed
//   advantages               one thread per agent, for groups whose agents are always active
//   advantages_with_pauses   one thread per agent, for groups with `active` and `left`
//
// All arrays are contiguous. Letters: T steps, N environments, C agents of the group, K slots, the maximum number of truncations of
// one environment in T steps, D 4-byte words of an observation, H action heads, W entries of a critic's observation.
#include "drive/math.cuh"

struct Workspace {};
struct Advantages {
  int num_envs, agents, steps, slots;  // N, C, T, K
  int obs_dim, heads, choices, critic_obs_dim;  // D, H, choices of all heads, W
  const float* gamma;        // (1)
  const float* gae_lambda;   // (1)
  const float* reward_scale;  // (1): factor of rewards
  const float* reward;       // (T, N, C)
  const float* value_center;  // (1) or null. If null, the critic's output is a return
  const float* value_scale;   // (1): if value_center is given, the critic's output is (return - center) * scale
  float* value;              // (T + 1, N, C): critic's outputs for the observation before each step, and after the last step
  const float* final_value;  // (K, N, C): outputs for the final observations at `truncated_at`, or null if there are no slots
  const u8* terminated;      // (T, N)
  const u8* truncated;       // (T, N)
  const u8* active;          // (T, N, C) or null: whether the agent is active before the step
  const u8* left;            // (T, N, C) or null: whether the agent leaves in the step
  float* advantage;          // (T, N, C)
  float* returns;            // (T, N, C): advantage + value, both as returns. The critic's target
  // Null if agents are always active:
  u8* weight;                // (T, N, C): 0 if nothing learns from the row, 1 if actor and critic do, 2 if only the critic does
  // The rest, except for `held`, is also null if the policy does not learn row by row, because it has a hidden state or its rows
  // are whole environments. First the rollout's inputs of learning. hold_step overwrites row 0 with the held step.
  u32* obs;                  // (T, N, C, D)
  u32* action;               // (T, N, C, H): int, or float before squashing
  u8* mask;                  // (T, N, C, choices) or null
  float* log_prob;           // (T, N, C)
  u32* critic_obs;           // (T, N, C, W) or null
  // One held step per agent, kept from rollout to rollout:
  u8* held;                  // (N, C): values of Held
  float* held_reward;        // (N, C): reward of the held step, and rewards since
  float* held_value;         // (N, C)
  float* held_log_prob;      // (N, C)
  u32* held_obs;             // (N, C, D)
  u32* held_action;          // (N, C, H)
  u8* held_mask;             // (N, C, choices) or null
  u32* held_critic_obs;      // (N, C, W) or null
};
// State of an agent's held step.
//   NONE  no step is held
//   OPEN  the agent pauses after the held step
//   GONE  the agent has left after the held step
// KINDS masks these bits. The flag PAYS is added if rewards have ever come after the agent left.
enum Held : u8 { NONE, OPEN, GONE, KINDS, PAYS };
struct Truncations {
  int num_envs, steps, slots;
  const u8* truncated;       // (T, N)
  i64* truncated_at;         // (K, N): steps of an environment's truncations in ascending order, then 0
};

// Converts outputs of the critic to returns. Without normalized values they are equal.
struct ValueUnits {
  bool normalized;
  float center, scale;
  DEVICE explicit ValueUnits(const Advantages& call)
      : normalized(call.value_center != nullptr), center(normalized ? *call.value_center : 0.0f),
        scale(normalized ? *call.value_scale : 1.0f) {}
  DEVICE float operator()(const float value) const { return normalized ? value / scale + center : value; }
};

// Inputs of AT_ONCE steps of one agent in registers, last step first. All loads are issued before any result is stored, so that
// their latencies overlap. The compiler could not move a load ahead of a store that might alias it.
constexpr int MOST_AT_ONCE = 16, FEW_AT_ONCE = 4;  // FEW_AT_ONCE is for rollouts of at most this many steps
template <int AT_ONCE> struct Steps {
  float value[AT_ONCE], reward[AT_ONCE];
  u8 terminated[AT_ONCE], truncated[AT_ONCE], left[AT_ONCE], active[AT_ONCE];

  // Load steps end - 1, end - 2, ... Element k is step end - 1 - k. Indices below 0 load step 0 again, which is not used.
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

// State of the backward scan: what a step needs to know about later steps.
struct Future {
  float value, advantage;  // of the next active step. After the last step of an episode or of the rollout: next_value, and 0
  float late;              // sum of the rewards of the inactive steps up to `end`
  int end;                 // next active step, first step of the next episode, or T
  bool open;               // no active step and no end of the episode is between the current step and T
  bool gone;               // the agent leaves in one of the inactive steps up to `end`
};

// Last active step of an agent in the episode that continues after the rollout. step is -1 if there is none.
struct Last {
  int step;
  float reward;
  bool gone;
};

// Copy row `from` of `source` to row `to` of `target`, both (rows, width).
template <class T> DEVICE void copy_row(T* target, const size_type to, const T* source, const size_type from, const int width) {
  for (int k = 0; k < width; ++k) target[to * width + k] = source[from * width + k];
}

// Exclude steps [from, until) of an agent from learning.
DEVICE void forget_rows(const Advantages& call, const int row, const int from, const int until) {
  for (int t = from; t < until; ++t) call.weight[(size_type)t * call.num_envs * call.agents + row] = 0;
}

// Learn again from the step that an earlier rollout has held, and hold the last active step of this rollout. Runs after the scan,
// when `future` describes the inactive steps at the beginning of the rollout. active_first: the agent is active in step 0. pays:
// rewards have come after the agent left.
DEVICE void hold_step(const Advantages& call, const int row, const bool active_first, const Last last, const Future& future,
                      bool pays) {
  const u8 before = call.held[row] & KINDS;
  u8 after = NONE;
  // Nothing learns from inactive steps at the beginning of the rollout, unless they continue a pause.
  if (!active_first && before != OPEN) forget_rows(call, row, 0, future.end);
  // Learn from the held step again: compute its advantage with the rewards so far, and copy its inputs to row 0. If the agent has
  // left, this happens only if rewards have come in this rollout.
  if (!active_first && before != NONE) {
    const bool gone = before == GONE;
    pays = pays || (gone && future.late != 0.0f);
    if (future.open) after = gone || future.gone ? GONE : OPEN;
    if (call.held_reward != nullptr) {
      const float reward = call.held_reward[row] + future.late;
      call.held_reward[row] = reward;
      if (!gone || future.late != 0.0f) {
        const float gamma = gone ? 0.0f : *call.gamma, value = ValueUnits(call)(call.held_value[row]);
        const float error = *call.reward_scale * reward + gamma * future.value - value;
        const float advantage = error + gamma * *call.gae_lambda * future.advantage;
        call.advantage[row] = advantage;
        call.returns[row] = advantage + value;
        call.weight[row] = 1;
        call.value[row] = call.held_value[row];
        call.log_prob[row] = call.held_log_prob[row];
        copy_row(call.obs, row, call.held_obs, row, call.obs_dim);
        copy_row(call.action, row, call.held_action, row, call.heads);
        if (call.mask != nullptr) copy_row(call.mask, row, call.held_mask, row, call.choices);
        if (call.critic_obs != nullptr) copy_row(call.critic_obs, row, call.held_critic_obs, row, call.critic_obs_dim);
      }
    }
  }
  // Hold the last active step, if its episode continues after the rollout. It replaces an older held step.
  if (last.step >= 0) {
    after = last.gone ? GONE : OPEN;
    if (call.held_reward != nullptr) {
      const size_type at = (size_type)last.step * call.num_envs * call.agents + row;
      call.held_reward[row] = last.reward;
      call.held_value[row] = call.value[at];
      call.held_log_prob[row] = call.log_prob[at];
      copy_row(call.held_obs, row, call.obs, at, call.obs_dim);
      copy_row(call.held_action, row, call.action, at, call.heads);
      if (call.mask != nullptr) copy_row(call.held_mask, row, call.mask, at, call.choices);
      if (call.critic_obs != nullptr) copy_row(call.held_critic_obs, row, call.critic_obs, at, call.critic_obs_dim);
    }
  }
  call.held[row] = after | (pays ? (u8)PAYS : (u8)0);
}

// Estimate the advantages of one agent. row: e * C + i for agent i of environment e. PAUSES: agents may be inactive.
template <int AT_ONCE, bool PAUSES> DEVICE void estimate_row(const Advantages& call, const int row) {
  const int e = row / call.agents;
  const size_type envs = call.num_envs, rows = envs * call.agents;
  const float gamma = *call.gamma, lambda = *call.gae_lambda, scale = *call.reward_scale;
  // Count the environment's truncations. `final_value` has them in ascending order, and the scan uses the last one first.
  int slot = 0;
  if (call.final_value != nullptr) {
    UNROLL_TIMES(16) for (int t = 0; t < call.steps; ++t) slot += call.truncated[t * envs + e];
  }
  const ValueUnits in_units(call);
  Future future{in_units(call.value[call.steps * rows + row]), 0.0f, 0.0f, call.steps, true, false};
  Last last{-1, 0.0f, false};  // mutant(constant 1): any negative step is none
  bool active = true, paid = false;
  const bool pays = PAUSES && call.held[row] & PAYS;
  // Scan the steps backwards, AT_ONCE steps per iteration. After the scan, `active` is that of step 0.
  for (int end = call.steps; end > 0; end -= AT_ONCE) {  // mutant(swap >): more work, same result
    Steps<AT_ONCE> steps;
    steps.load(call, row, e, end);
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      if (k >= end) continue;
      const int t = end - 1 - k;
      const float value = in_units(steps.value[k]);
      // The end of an episode sets the bootstrap value and cuts the sum of advantages. A termination overrides a truncation.
      if (steps.truncated[k]) {
        slot -= 1;
        future.value = slot >= 0 && slot < call.slots ? in_units(call.final_value[slot * rows + row]) : 0.0f;
      }
      if (steps.terminated[k]) future.value = 0.0f;
      if (steps.terminated[k] || steps.truncated[k]) {
        if constexpr (PAUSES) forget_rows(call, row, t + 1, future.end);  // rows before an agent's first active step
        future.advantage = future.late = 0.0f;
        future.end = t + 1;
        future.open = future.gone = false;
      }
      float reward = steps.reward[k];
      const bool left = steps.left[k] && !pays;
      if constexpr (PAUSES) {
        // Nothing learns from inactive steps after an agent has left.
        if (left) forget_rows(call, row, t + 1, future.end);  // mutant(swap t + 1): written next
        paid = paid || (steps.left[k] && future.late != 0.0f);
        active = steps.active[k];
        if (!active) {  // pass the reward on to the last active step before, and let the critic learn
          if (left) {
            future.value = future.advantage = 0.0f;
            future.gone = true;
          }
          future.late += reward;
          call.advantage[t * rows + row] = 0.0f;
          call.returns[t * rows + row] = scale * future.late + future.value;
          call.weight[t * rows + row] = 2;
          continue;
        }
        reward += future.late;
      }
      // Active step: temporal difference `error` and advantage.
      const float error = scale * reward + gamma * (left ? 0.0f : future.value) - value;
      const float advantage = error + (left ? 0.0f : gamma * lambda * future.advantage);
      if constexpr (PAUSES) {
        if (future.open) last = {t, reward, left || future.gone};
        call.weight[t * rows + row] = 1;
      }
      call.advantage[t * rows + row] = advantage;
      call.returns[t * rows + row] = advantage + value;
      future = {value, advantage, 0.0f, t, false, false};
    }
  }
  if constexpr (PAUSES) hold_step(call, row, active, last, future, pays || paid);
}

// List the steps of an environment's truncations in `truncated_at`, and fill the remaining slots with 0.
DEVICE void find_truncations(const Truncations& call, const int e) {
  int slot = 0;
  constexpr int AT_ONCE = MOST_AT_ONCE;
  for (int first = 0; first < call.steps; first += AT_ONCE) {  // mutant(swap <): more work, same result
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

template <bool PAUSES> DEVICE void estimate(const Advantages& call, const int row) {
  if (call.steps <= FEW_AT_ONCE) estimate_row<FEW_AT_ONCE, PAUSES>(call, row);  // mutant(swap <=): speed only
  else estimate_row<MOST_AT_ONCE, PAUSES>(call, row);
}

#include "drive/launch.cuh"
KERNEL(advantages, Advantages, call.num_envs * call.agents, estimate<false>(call, e))
KERNEL(advantages_with_pauses, Advantages, call.num_envs * call.agents, estimate<true>(call, e))
KERNEL(truncations, Truncations, call.num_envs, find_truncations(call, e))
