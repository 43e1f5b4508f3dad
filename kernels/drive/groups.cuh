// groups.cuh -- one group of agents of one environment: its rows of the batch, and what drive.cuh does with them in a step.
#pragma once
#include "drive/env.cuh"

// Return and length of one agent's episode lie side by side, one record of 8 bytes: half as many pieces of memory to touch.
constexpr int RECORD = ONE_AGENT ? 2 : 1;  // words from one row's number to the next

template <class Action> struct GroupRows {
  obs_t* obs;                // (T, N, C, OBS) after each step, after an autoreset if there was one
  const obs_t* current_obs;  // (N, C, OBS) before the first step (rollout: copied to the row before obs)
  obs_t* final_obs;          // (T, N, C, OBS) or null; rows written where an episode ended
  float* reward;             // (T, N, C)
  float* returns;            // (N, C) reward since the episode began
  float* episode_return;     // (T, N, C) * RECORD; rows written where an episode ended
  Action* action;            // (T, N, C, HEADS)
  u8* action_mask;           // (T, N, C, choices): what may be taken after each step, groups with masks; before the
                             // first step: the row before
  u8* active;                // (T, N, C) before the step   } groups whose agents may leave
  u8* left;                  // (T, N, C) in this step      }
};

// What is near while a launch runs (drive.cuh says where), if ROWS_NEAR.
template <int COUNT, int HEADS, class Action> struct NearRows {
  alignas(16) float reward[COUNT];
  alignas(16) Action action[COUNT * HEADS];
};
// The same, of what no environment's function sees: one thread has it in registers.
template <int COUNT, int HEADS> struct HiddenRows {
  float returns[COUNT];
  alignas(16) Random::Bits drawn[COUNT * HEADS];  // random words for four steps
};
struct NoRows {};

// Puts this step's actions where `env.NAME.action` reads them: drawn at random, or taken from the batch.
template <bool RANDOM, class Space, int COUNT, int OBS, int HEADS, class Action, class Near, class Hidden>
DEVICE void take_actions(const Team team, Group<Space, COUNT, OBS, HEADS, Action>& group, const GroupRows<Action>& rows,
                         Near& near, Hidden& hidden, const size_type row, const Random& random, const u32 time,
                         const bool first_step, const int first_agent, const int num_envs) {
  Action* const far = rows.action + row * (COUNT * HEADS);
  const u8* mask = nullptr;
  if constexpr (RANDOM && Space::MASKED) {
    mask = rows.action_mask + ((i64)row - num_envs) * (COUNT * Space::CHOICES);
  }
  if constexpr (RANDOM) {
    for (int i : team.each(COUNT)) {
      UNROLL for (int head = 0; head < HEADS; ++head) {
        const int at = i * HEADS + head;
        u32 word;
        if constexpr (ROWS_NEAR) {
          if (first_step || time % 4 == 0) hidden.drawn[at] = random.bits(first_agent + i, head);
          if constexpr (TEAM == 1) word = hidden.drawn[at].word(time);  // selects among registers
          else word = ((const u32*)&hidden.drawn[at])[time % 4];
        } else {
          word = random.bits(first_agent + i, head).word(time);
        }
        Action action;
        if constexpr (Space::MASKED) action = Space::sample_allowed(word, head, mask + i * Space::CHOICES);
        else action = Space::sample(word, head);
        if constexpr (ROWS_NEAR) near.action[at] = action;
        else far[at] = action;
      }
    }
  }
  if constexpr (RANDOM && ROWS_NEAR) group.action_row = near.action;
  else group.action_row = far;
}

// Points the group at row (t, e) and sets its rewards to 0.
template <class Space, int COUNT, int OBS, int HEADS, class Action, class Near>
DEVICE void begin_step(const Team team, Group<Space, COUNT, OBS, HEADS, Action>& group, const GroupRows<Action>& rows,
                       Near& near, const size_type row) {
  if constexpr (ROWS_NEAR) group.reward_row = near.reward;
  else group.reward_row = rows.reward + row * COUNT;
  if constexpr (Space::LEAVES) {
    group.active_row = rows.active + row * COUNT;
    group.left_row = rows.left + row * COUNT;
  }
  for (int i : team.each(COUNT)) group.reward_row[i] = 0.0f;
}

// Adds up the rewards and hands over the sums where the episode is over (one agent's: with its length, later).
template <class Space, int COUNT, int OBS, int HEADS, class Action, class Hidden>
DEVICE void end_step(const Team team, Group<Space, COUNT, OBS, HEADS, Action>& group, const GroupRows<Action>& rows,
                     Hidden& hidden, const size_type row, const int e, const bool over, const bool record, float& sum) {
  for (int i : team.each(COUNT)) {
    const float reward = group.reward_row[i];
    float* total;
    if constexpr (ROWS_NEAR) total = hidden.returns + i;
    else total = rows.returns + (size_type)e * COUNT + i;
    sum = *total + reward;
    if (!ONE_AGENT && record) store_last(rows.episode_return + row * COUNT + i, sum);
    *total = over ? 0.0f : sum;
  }
}

// Stores the near rows of this step. All stores of a step stand together at its end: registers that a store still
// reads cannot be written, and stores spread over the step would make the next instructions wait for each of them.
// Each member stores what it wrote itself: the next step's actions are written before the next sync.
template <bool RANDOM, int COUNT, int HEADS, class Action>
DEVICE void store_rows(const Team team, NearRows<COUNT, HEADS, Action>& near, const GroupRows<Action>& rows, const size_type row) {
  if constexpr (TEAM == 1) {
    copy_words<COUNT>(team, rows.reward + row * COUNT, near.reward);
    if constexpr (RANDOM) copy_words<COUNT * HEADS>(team, rows.action + row * (COUNT * HEADS), near.action);
  } else {
    for (int i : team.each(COUNT)) {
      rows.reward[row * COUNT + i] = near.reward[i];
      if constexpr (RANDOM) {
        for (int at = i * HEADS; at < (i + 1) * HEADS; ++at) rows.action[row * (COUNT * HEADS) + at] = near.action[at];
      }
    }
  }
}
template <bool RANDOM, class Action> DEVICE void store_rows(const Team, NoRows&, const GroupRows<Action>&, const size_type) {}

// Moves the returns between the batch and what is near.
template <int COUNT, int HEADS, class Action>
DEVICE void copy_returns(const Team team, HiddenRows<COUNT, HEADS>& hidden, const GroupRows<Action>& rows, int e, bool in) {
  float* const far = rows.returns + (size_type)e * COUNT;
  for (int i : team.each(COUNT)) in ? hidden.returns[i] = far[i] : far[i] = hidden.returns[i];
}
template <class Action> DEVICE void copy_returns(const Team, NoRows&, const GroupRows<Action>&, int, bool) {}
