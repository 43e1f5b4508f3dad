// advantages.cu -- generalised advantage estimation, agent by agent.
//
// Source: Schulman et al. 2016, "High-dimensional continuous control using generalized advantage estimation", eq. 11-16.
// Truncation bootstraps from the value of the final observation; termination, and an agent's leaving, from 0. All three
// cut the sum.
// A policy learns from the active steps of an agent only. Rewards of the inactive steps that follow one in its episode are added to
// its reward, and the next value is that of the agent's next active step. From the steps of a pause only the critic learns: their
// value is the sum of rewards until the next active step, and the value there.
// A rollout may end first. A step then bootstraps from the value of the last observation, and is held. Each later rollout that
// begins before the agent's next active step learns it again, with all rewards so far: in row 0, which is one of the pause.
// An agent that leaves has no next active step: its step bootstraps from 0, and nothing is learnt afterwards. Where rewards have
// ever come after an agent left, leaving is a pause from then on.
// Letters: T steps, N environments, C agents, K the most truncations of one environment in T steps; D observation entries,
// H action heads.
#include "drive/math.cuh"

struct Workspace {};
struct Advantages {
  int num_envs, agents, steps, slots;  // N, C, T, K
  int obs_dim, heads, choices;         // D, H, choices of all heads
  const float* gamma;        // (1)
  const float* gae_lambda;   // (1)
  const float* reward_scale;  // (1)
  const float* reward;       // (T, N, C)
  float* value;              // (T + 1, N, C) of the observation before each step, and after the last
  const float* final_value;  // (K, N, C) of the final observations at `truncated_at`, or null if nothing is truncated
  const u8* terminated;      // (T, N)
  const u8* truncated;       // (T, N)
  const u8* active;          // (T, N, C) or null: in the game before the step
  const u8* left;            // (T, N, C) or null: left the game in the step
  float* advantage;          // (T, N, C)
  float* returns;            // (T, N, C): advantage + value, what the critic is to learn
  // Where agents may be inactive, else null:
  u8* weight;                // (T, N, C): 1 where the row is learnt from, 2 where only the critic learns from it
  // Null also for a policy with hidden state, which learns whole sequences, but for `held`. What a row is learnt from, and the
  // same of held steps:
  u32* obs;                  // (T, N, C, D)
  u32* action;               // (T, N, C, H): int, or float before squashing
  u8* mask;                  // (T, N, C, choices) or null
  float* log_prob;           // (T, N, C)
  u8* held;                  // (N, C): a Held
  float* held_reward;        // (N, C): its own, and those since
  float* held_value;         // (N, C)
  float* held_log_prob;      // (N, C)
  u32* held_obs;             // (N, C, D)
  u32* held_action;          // (N, C, H)
  u8* held_mask;             // (N, C, choices) or null
};
// An agent's held step: none; one before its next active step; one after which the agent has left. PAYS is added where rewards
// have ever come after the agent left.
enum Held : u8 { NONE, OPEN, GONE, KINDS, PAYS };
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

// What is known, looking back from later steps, of what comes after a step of an agent.
struct Future {
  float value, advantage;  // of its next active step, or what stands for it after the last step that is known
  float late;              // rewards of inactive steps before that one
  int end;                 // where these steps end: the next active step, or the one after the end of the episode
  bool open;               // neither an active step nor the end of the episode has been seen
  bool gone;               // the agent leaves in one of the inactive steps
};

// The last active step of an agent whose episode goes on beyond the rollout; -1: none.
struct Last {
  int step;
  float reward;
  bool gone;
};

// Copies row `from` of `source` to row `to` of `target`, both (rows, width).
template <class T> DEVICE void copy_row(T* target, const size_type to, const T* source, const size_type from, const int width) {
  for (int k = 0; k < width; ++k) target[to * width + k] = source[from * width + k];
}

// Lets nothing be learnt from rows [from, until) of an agent.
DEVICE void forget_rows(const Advantages& call, const int row, const int from, const int until) {
  for (int t = from; t < until; ++t) call.weight[(size_type)t * call.num_envs * call.agents + row] = 0;
}

// Learns the held step of an agent that was inactive when the rollout began, and holds its last active step. `pays`: rewards have
// come after the agent left.
DEVICE void hold_step(const Advantages& call, const int row, const bool active_first, const Last last, const Future& future,
                      bool pays) {
  const u8 before = call.held[row] & KINDS;
  u8 after = NONE;
  if (!active_first && before != OPEN) forget_rows(call, row, 0, future.end);
  if (!active_first && before != NONE) {
    const bool gone = before == GONE;
    pays = pays || (gone && future.late != 0.0f);
    if (future.open) after = gone || future.gone ? GONE : OPEN;
    if (call.held_reward != nullptr) {
      const float reward = call.held_reward[row] + future.late;
      call.held_reward[row] = reward;
      if (!gone || future.late != 0.0f) {
        const float gamma = gone ? 0.0f : *call.gamma, value = call.held_value[row];
        const float error = *call.reward_scale * reward + gamma * future.value - value;
        const float advantage = error + gamma * *call.gae_lambda * future.advantage;
        call.advantage[row] = advantage;
        call.returns[row] = advantage + value;
        call.weight[row] = 1;
        call.value[row] = value;
        call.log_prob[row] = call.held_log_prob[row];
        copy_row(call.obs, row, call.held_obs, row, call.obs_dim);
        copy_row(call.action, row, call.held_action, row, call.heads);
        if (call.mask != nullptr) copy_row(call.mask, row, call.held_mask, row, call.choices);
      }
    }
  }
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
    }
  }
  call.held[row] = after | (pays ? (u8)PAYS : (u8)0);
}

// Row (e, i) of [0, N * C). PAUSES: agents may be inactive.
template <int AT_ONCE, bool PAUSES> DEVICE void estimate_row(const Advantages& call, const int row) {
  const int e = row / call.agents;
  const size_type envs = call.num_envs, rows = envs * call.agents;
  const float gamma = *call.gamma, lambda = *call.gae_lambda, scale = *call.reward_scale;
  int slot = 0;
  if (call.final_value != nullptr) {
    UNROLL_TIMES(16) for (int t = 0; t < call.steps; ++t) slot += call.truncated[t * envs + e];
  }
  Future future{call.value[call.steps * rows + row], 0.0f, 0.0f, call.steps, true, false};
  Last last{-1, 0.0f, false};  // equal(constant 1): any negative step is none
  bool active = true, paid = false;
  const bool pays = PAUSES && call.held[row] & PAYS;
  for (int end = call.steps; end > 0; end -= AT_ONCE) {  // equal(swap >): more work, same result
    Steps<AT_ONCE> steps;
    steps.load(call, row, e, end);
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      if (k >= end) continue;
      const int t = end - 1 - k;
      const float value = steps.value[k];
      if (steps.truncated[k]) {
        slot -= 1;
        future.value = slot >= 0 && slot < call.slots ? call.final_value[slot * rows + row] : 0.0f;
      }
      if (steps.terminated[k]) future.value = 0.0f;
      if (steps.terminated[k] || steps.truncated[k]) {
        if constexpr (PAUSES) forget_rows(call, row, t + 1, future.end);  // before an agent's first active step
        future.advantage = future.late = 0.0f;
        future.end = t + 1;
        future.open = future.gone = false;
      }
      float reward = steps.reward[k];
      const bool left = steps.left[k] && !pays;
      if constexpr (PAUSES) {
        // What follows an agent's leaving is no pause.
        if (left) forget_rows(call, row, t + 1, future.end);  // equal(swap t + 1): written next
        paid = paid || (steps.left[k] && future.late != 0.0f);
        active = steps.active[k];
        if (!active) {  // its reward goes to the active step before
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

DEVICE void find_truncations(const Truncations& call, const int e) {
  int slot = 0;
  constexpr int AT_ONCE = MOST_AT_ONCE;
  for (int first = 0; first < call.steps; first += AT_ONCE) {  // equal(swap <): more work, same result
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
  if (call.steps <= FEW_AT_ONCE) estimate_row<FEW_AT_ONCE, PAUSES>(call, row);  // equal(swap <=): speed only
  else estimate_row<MOST_AT_ONCE, PAUSES>(call, row);
}

#include "drive/launch.cuh"
KERNEL(advantages, Advantages, call.num_envs * call.agents, estimate<false>(call, e))
KERNEL(advantages_with_pauses, Advantages, call.num_envs * call.agents, estimate<true>(call, e))
KERNEL(truncations, Truncations, call.num_envs, find_truncations(call, e))
