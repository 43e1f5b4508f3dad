// groups.cuh -- one group of agents of one environment: its rows of the batch, and what phases.cuh does with them in a step.
#pragma once
#include "drive/env.cuh"

// Observations of a warp's environments leave together, where each has a thread and several agents (storage/warp_copy.cuh).
#if defined(__CUDACC__) && TEAM == 1 && !ONE_AGENT && OBS_NEAR && ENVS_PER_BLOCK % 32 == 0
#define OBS_WARP_COPY 1
#else
#define OBS_WARP_COPY 0
#endif

// Return and length of one agent's episode lie side by side, one record of 8 bytes: half as many pieces of memory to touch.
constexpr int RECORD = ONE_AGENT ? 2 : 1;  // words from one row's number to the next

template <class Kind> struct GroupRows {
  typedef typename Kind::Action Action;
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

// What is near while a launch runs (batch.cuh says where), if ROWS_NEAR.
template <class Kind> struct NearRows {
  alignas(16) float reward[Kind::COUNT];
  alignas(16) typename Kind::Action action[Kind::COUNT * Kind::HEADS];
};
struct NoRows {};

// What four steps' actions of one head are drawn from: random words; in a team, of few choices that are all allowed, the
// actions themselves, a byte each. (One thread has registers enough where environments are few, and waits for packing.)
template <class Kind> constexpr bool PACKED = Kind::BYTES && (TEAM > 1 || OBS_WARP_COPY);
template <bool BYTES> struct Drawn {
  alignas(16) Random::Bits bits;

  template <class Kind> DEVICE void draw(const Random::Bits& drawn, const int) { bits = drawn; }
  template <class Kind> DEVICE auto action(const u32 word_of_four, const int head, const u8* mask) const {
    // One thread selects among registers; shared memory has an index.
    const u32 word = TEAM == 1 ? bits.word(word_of_four) : ((const u32*)&bits)[word_of_four];
    if constexpr (Kind::MASKED) return Kind::sample_allowed(word, head, mask);
    else return Kind::sample(word, head);
  }
};
template <> struct Drawn<true> {
  u32 bytes;

  template <class Kind> DEVICE void draw(const Random::Bits& drawn, const int head) {
    const auto byte = [head](const u32 word) { return (u32)Kind::sample(word, head); };
    bytes = byte(drawn.x) | byte(drawn.y) << 8 | byte(drawn.z) << 16 | byte(drawn.w) << 24;
  }
  template <class Kind> DEVICE int action(const u32 word_of_four, const int, const u8*) const {
    return bytes >> 8 * word_of_four & 255u;
  }
};

// What no environment's function sees. A member has it in registers, if few agents are its own: rank, rank + TEAM, ...
constexpr bool few_own(const int count) { return TEAM == 1 ? ROWS_NEAR : own_count(count) <= FEW_OWN; }
constexpr bool own_drawn(const int count, const bool bytes) { return few_own(count) && (TEAM == 1 || bytes); }
template <class Kind> struct OwnReturns { float of[own_count(Kind::COUNT)]; };
template <class Kind> struct OwnDrawn {
  Drawn<PACKED<Kind>> drawn[own_count(Kind::COUNT) * Kind::HEADS];
  DEVICE auto& at(const int k, const int, const int head) { return drawn[k * Kind::HEADS + head]; }
};
template <class Kind> struct TeamDrawn {
  Drawn<PACKED<Kind>> drawn[Kind::COUNT * Kind::HEADS];
  DEVICE auto& at(const int, const int i, const int head) { return drawn[i * Kind::HEADS + head]; }
};

// Given actions are fetched before the step that takes them, by a team of one: nothing else has to wait for them then.
constexpr bool FETCHED = TEAM == 1 && ROWS_NEAR;
template <class Kind>
DEVICE void fetch_actions_of(const Team team, NearRows<Kind>& near, const GroupRows<Kind>& rows, const size_type row) {
  copy_words<Kind::COUNT * Kind::HEADS>(team, near.action, rows.action + row * (Kind::COUNT * Kind::HEADS));
}
template <class Kind> DEVICE void fetch_actions_of(const Team, NoRows&, const GroupRows<Kind>&, const size_type) {}

// Draws four steps' actions.
template <class Kind, class Rows> DEVICE void draw_actions(const Team team, Kind, Rows& rows, const Random& random) {
  FOR_OWN(team, k, i, Kind::COUNT) {
    UNROLL for (int head = 0; head < Kind::HEADS; ++head) {
      rows.at(k, i, head).template draw<Kind>(random.bits(Kind::FIRST_AGENT + i, head), head);
    }
  }
}
template <class Kind> DEVICE void draw_actions(const Team, Kind, NoRows&, const Random&) {}

template <class Kind, class Rows>
DEVICE auto drawn_action(Rows& rows, const int k, const int i, const int head, const Random&, const u32 word_of_four, const u8* mask) {
  return rows.at(k, i, head).template action<Kind>(word_of_four, head, mask);
}
template <class Kind>
DEVICE auto drawn_action(NoRows&, const int, const int i, const int head, const Random& random, const u32 word_of_four,
                         const u8* mask) {
  Drawn<PACKED<Kind>> drawn;
  drawn.template draw<Kind>(random.bits(Kind::FIRST_AGENT + i, head), head);
  return drawn.template action<Kind>(word_of_four, head, mask);
}

// Puts this step's actions where `env.NAME.action` reads them: drawn at random, or taken from the batch.
template <bool RANDOM, class Kind, class Near, class Rows>
DEVICE void take_actions(const Team team, Group<Kind>& group, const GroupRows<Kind>& rows, Near& near, Rows& drawn,
                         const size_type row, const Random& random, const u32 word_of_four, const int num_envs) {
  typename Kind::Action* const far = rows.action + row * (Kind::COUNT * Kind::HEADS);
  if constexpr (RANDOM) {
    const u8* mask = nullptr;
    if constexpr (Kind::MASKED) mask = rows.action_mask + ((i64)row - num_envs) * (Kind::COUNT * Kind::CHOICES);
    FOR_OWN(team, k, i, Kind::COUNT) {
      UNROLL for (int head = 0; head < Kind::HEADS; ++head) {
        const auto action = drawn_action<Kind>(drawn, k, i, head, random, word_of_four,
                                               Kind::MASKED ? mask + i * Kind::CHOICES : nullptr);
        if constexpr (ROWS_NEAR) near.action[i * Kind::HEADS + head] = action;
        else far[i * Kind::HEADS + head] = action;
      }
    }
  }
  if constexpr ((RANDOM && ROWS_NEAR) || FETCHED) group.action_row = near.action;
  else group.action_row = far;
}

// Points the group at row (t, e) and sets its rewards to 0.
template <class Kind, class Near>
DEVICE void begin_rows(const Team team, Group<Kind>& group, const GroupRows<Kind>& rows, Near& near, const size_type row) {
  if constexpr (ROWS_NEAR) group.reward_row = near.reward;
  else group.reward_row = rows.reward + row * Kind::COUNT;
  if constexpr (Kind::LEAVES) {
    group.active_row = rows.active + row * Kind::COUNT;
    group.left_row = rows.left + row * Kind::COUNT;
  }
  FOR_OWN(team, k, i, Kind::COUNT) group.reward_row[i] = 0.0f;
}

// The returns so far of the k-th own agent, i.
template <class Kind>
DEVICE float& return_at(OwnReturns<Kind>& own, const GroupRows<Kind>&, const int, const int k, const int) { return own.of[k]; }
template <class Kind>
DEVICE float& return_at(NoRows&, const GroupRows<Kind>& rows, const int e, const int, const int i) {
  return rows.returns[(size_type)e * Kind::COUNT + i];
}

// Adds up the rewards and hands over the sums where the episode is over (one agent's: with its length, later).
template <class Kind, class Own>
DEVICE void end_rows(const Team team, Group<Kind>& group, const GroupRows<Kind>& rows, Own& own, const size_type row, const int e,
                     const bool over, const bool record, float& sum) {
  FOR_OWN(team, k, i, Kind::COUNT) {
    float& returns = return_at<Kind>(own, rows, e, k, i);
    sum = returns + group.reward_row[i];
    if (!ONE_AGENT && record) store_last(rows.episode_return + row * Kind::COUNT + i, sum);
    returns = over ? 0.0f : sum;
  }
}

// Stores the near rows of this step. All stores of a step stand together at its end: registers that a store still
// reads cannot be written, and stores spread over the step would make the next instructions wait for each of them.
// Each member stores what it wrote itself: the next step's actions are written before the next sync.
template <bool RANDOM, class Kind>
DEVICE void store_rows(const Team team, NearRows<Kind>& near, const GroupRows<Kind>& rows, const size_type row) {
  constexpr int COUNT = Kind::COUNT, HEADS = Kind::HEADS;
  if constexpr (TEAM == 1) {
    copy_words<COUNT>(team, rows.reward + row * COUNT, near.reward);
    if constexpr (RANDOM) copy_words<COUNT * HEADS>(team, rows.action + row * (COUNT * HEADS), near.action);
  } else {
    FOR_OWN(team, k, i, COUNT) {
      rows.reward[row * COUNT + i] = near.reward[i];
      if constexpr (RANDOM) {
        for (int at = i * HEADS; at < (i + 1) * HEADS; ++at) rows.action[row * (COUNT * HEADS) + at] = near.action[at];
      }
    }
  }
}
template <bool RANDOM, class Kind> DEVICE void store_rows(const Team, NoRows&, const GroupRows<Kind>&, const size_type) {}

// Moves the returns between the batch and what is a member's own.
template <class Kind>
DEVICE void copy_returns(const Team team, OwnReturns<Kind>& own, const GroupRows<Kind>& rows, const int e, const bool in) {
  FOR_OWN(team, k, i, Kind::COUNT) {
    float& far = rows.returns[(size_type)e * Kind::COUNT + i];
    in ? own.of[k] = far : far = own.of[k];
  }
}
template <class Kind> DEVICE void copy_returns(const Team, NoRows&, const GroupRows<Kind>&, const int, const bool) {}
