// groups.cuh -- one group of agents of one environment: its rows of the batch, and what phases.cuh does with them in a step.
#pragma once
#include "drive/env.cuh"

// Return and length of one agent's episode lie side by side, in one record of 8 bytes: to store both touches one piece of
// memory instead of two.
constexpr int RECORD = ONE_AGENT ? 2 : 1;  // words from one row's number to the next

template <class Kind> struct GroupRows {
  typedef typename Kind::Action Action;
  typedef typename Kind::ObsRows::Far Obs;
  Obs* obs;                  // (T, N, C, OBS) after each step, after an autoreset if there was one
  const Obs* current_obs;    // (N, C, OBS) before the first step (rollout: copied to the row before obs)
  Obs* final_obs;            // (T, N, C, OBS) or null. Rows are written where an episode ended
  float* critic_obs;         // (T, N, C, CRITIC) after each step, or null if no policy reads it
  float* final_critic_obs;   // (T, N, C, CRITIC) or null. Rows are written where an episode ended
  float* reward;             // (T, N, C)
  float* returns;            // (N, C) reward since the episode began
  float* episode_return;     // (T, N, C) * RECORD. Rows are written where an episode ended
  Action* action;            // (T, N, C, HEADS)
  u8* action_mask;           // (T, N, C, choices): what may be taken after each step, groups with masks; before the
                             // first step: the row before
  u8* active;                // (T, N, C) before the step   } groups whose agents may leave
  u8* left;                  // (T, N, C) in this step      }
  int packed;                // whether observations of bool are bits, (..., C, WORDS) words, or bytes; `current_packed`: of
  int current_packed;        // `current_obs`
};

// What the actions of one head in four steps are drawn from: four 32-bit random integers, or (PACKED) the four actions, a byte each, if a
// head has at most 256 choices and no mask. One thread packs only where environments are many: packing takes time.
template <class Kind> constexpr bool PACKED = Kind::BYTES && (TEAM > 1 || OBSERVATIONS == OBS_WARP_COPY);
template <bool BYTES> struct Drawn {
  alignas(16) Random::Bits bits;

  template <class Kind> DEVICE void draw(const Random::Bits& drawn, const int) { bits = drawn; }
  template <class Kind> DEVICE auto action(const u32 word_of_four, const int head, const u8* mask) const {
    // One thread has the words in registers and selects among them. Shared memory can be indexed.
    const u32 word = TEAM == 1 ? bits.word(word_of_four) : ((const u32*)&bits)[word_of_four];  // mutant(swap ==): speed only
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

// Few heads of an agent are drawn side by side, by copies of the code instead of a loop. For 100 heads they would take 300 kB.
template <class Kind> constexpr bool FEW_HEADS = Kind::HEADS <= FEW_OWN;

// What no environment's function reads: the returns so far, and what the next actions are drawn from. SLOTS: how many agents
// these are of, all of the group, or those of one member (its k-th one is agent i).
struct NoRows {};
template <class Kind, int SLOTS> struct KeptRows {
  float returns[SLOTS];
  Drawn<PACKED<Kind>> drawn[SLOTS * Kind::HEADS];

  static DEVICE int slot(const int k, const int i) { return SLOTS == own_count(Kind::COUNT) ? k : i; }
};
// A thread with few agents keeps theirs in registers (`advance_env`). A team's words that are not packed stay in the workspace, as
// an index selects one of four; so does all that a CPU's thread has, whose workspace is on the stack.
template <class Kind> constexpr bool OWN =
    // mutant(swap <=, swap ==, swap &&, swap ?, constant): speed only
    TEAM == 1 ? ROWS_ON_CHIP && REGISTERS_HAVE_NO_INDEX && sizeof(KeptRows<Kind, own_count(Kind::COUNT)>) <= MOST_LOCAL_BYTES
              : PACKED<Kind> && FEW_HEADS<Kind> && own_count(Kind::COUNT) <= FEW_OWN;  // mutant(swap <=, swap &&): speed only
template <class Kind> using OwnRows = typename Choose<OWN<Kind>, KeptRows<Kind, own_count(Kind::COUNT)>, NoRows>::type;

// What is near while a launch runs (batch.cuh says where). Without ROWS_ON_CHIP it is NoRows: rewards and actions are in global
// memory, and so are the returns of members with many agents, whose actions are drawn in every step.
template <class Kind> struct OnChipRows {
  alignas(16) float reward[Kind::COUNT];
  alignas(16) typename Kind::Action action[Kind::COUNT * Kind::HEADS];
  typename Choose<OWN<Kind>, NoRows, KeptRows<Kind, Kind::COUNT>>::type kept;
};
template <class Kind> using WorkRows = typename Choose<ROWS_ON_CHIP, OnChipRows<Kind>, NoRows>::type;

// Where a group's KeptRows are, if there are any (HAS_KEPT_ROWS): a member's own, or in the workspace.
template <class Kind> constexpr bool HAS_KEPT_ROWS = OWN<Kind> || ROWS_ON_CHIP;
template <class Kept, class Near> DEVICE Kept& kept_rows(Kept& own, Near&) { return own; }
template <class Kind> DEVICE auto& kept_rows(NoRows&, OnChipRows<Kind>& near) { return near.kept; }

// A team of one prefetches the given actions of the next step.
constexpr bool FETCHED = TEAM == 1 && ROWS_ON_CHIP;  // mutant(swap ==): speed only
template <class Kind>
DEVICE void fetch_actions_of(const Team team, OnChipRows<Kind>& near, const GroupRows<Kind>& rows, const size_type row) {
  copy_words<Kind::COUNT * Kind::HEADS>(team, near.action, rows.action + row * (Kind::COUNT * Kind::HEADS));
}

// Calls visit(k, i, head) for heads that this member draws actions of: those of its k-th agent i; or, of many heads, any, so that
// the team's members draw as many each, and what they store lies side by side.
template <class Kind, class Visit> DEVICE void each_head(const Team team, const Visit visit) {
  if constexpr (FEW_HEADS<Kind>) {
    FOR_OWN(team, k, i, Kind::COUNT) {
      UNROLL for (int head = 0; head < Kind::HEADS; ++head) visit(k, i, head);
    }
  } else {
    NO_UNROLL for (int n = team.rank; n < Kind::COUNT * Kind::HEADS; n += TEAM) {
      const int i = n / Kind::HEADS;
      visit(i, i, n - i * Kind::HEADS);
    }
  }
}

// Draws the 32-bit random integers of the next four steps' actions (struct Drawn).
template <class Kind, class Kept> DEVICE void draw_ahead(const Team team, Kept& kept, const Random& random) {
  if constexpr (HAS_KEPT_ROWS<Kind>) {
    each_head<Kind>(team, [&](const int k, const int i, const int head) INLINED {
      kept.drawn[kept.slot(k, i) * Kind::HEADS + head].template draw<Kind>(random.bits(Kind::FIRST_AGENT + i, head), head);
    });
  }
}

template <class Kind, class Kept>
DEVICE auto drawn_action(Kept& kept, int k, int i, int head, const Random& random, u32 word_of_four, const u8* mask) {
  if constexpr (HAS_KEPT_ROWS<Kind>) {
    return kept.drawn[kept.slot(k, i) * Kind::HEADS + head].template action<Kind>(word_of_four, head, mask);
  } else {
    Drawn<PACKED<Kind>> drawn;
    drawn.template draw<Kind>(random.bits(Kind::FIRST_AGENT + i, head), head);
    return drawn.template action<Kind>(word_of_four, head, mask);
  }
}

// Puts this step's actions where `env.NAME.action` reads them: drawn at random, or taken from the batch.
template <bool RANDOM, class Kind, class Near, class Kept>
DEVICE void take_actions(const Team team, Group<Kind>& group, const GroupRows<Kind>& rows, Near& near, Kept& kept,
                         const size_type row, const Random& random, const u32 word_of_four, const int num_envs) {
  constexpr int COUNT = Kind::COUNT, HEADS = Kind::HEADS;
  typename Kind::Action* action = rows.action + row * (COUNT * HEADS);
  if constexpr ((RANDOM && ROWS_ON_CHIP) || FETCHED) action = near.action;
  if constexpr (RANDOM) {
    const u8* mask = nullptr;
    if constexpr (Kind::MASKED) mask = rows.action_mask + ((i64)row - num_envs) * (COUNT * Kind::CHOICES);
    each_head<Kind>(team, [&](const int k, const int i, const int head) INLINED {
      const u8* const of_agent = Kind::MASKED ? mask + i * Kind::CHOICES : nullptr;
      action[i * HEADS + head] = drawn_action<Kind>(kept, k, i, head, random, word_of_four, of_agent);
    });
  }
  group.action_row = action;
}

// Points the group at row (t, e) and sets its rewards to 0.
template <class Kind, class Near>
DEVICE void begin_rows(const Team team, Group<Kind>& group, const GroupRows<Kind>& rows, Near& near, const size_type row) {
  if constexpr (ROWS_ON_CHIP) group.reward_row = near.reward;
  else group.reward_row = rows.reward + row * Kind::COUNT;
  if constexpr (Kind::LEAVES) {
    group.active_row = rows.active + row * Kind::COUNT;
    group.left_row = rows.left + row * Kind::COUNT;
  }
  FOR_OWN(team, k, i, Kind::COUNT) group.reward_row[i] = 0.0f;
}

// The returns so far of agent i of environment e, a member's k-th one.
template <class Kind, class Kept>
DEVICE float& return_at(Kept& kept, const GroupRows<Kind>& rows, const int e, const int k, const int i) {
  if constexpr (HAS_KEPT_ROWS<Kind>) return kept.returns[kept.slot(k, i)];
  else return rows.returns[(size_type)e * Kind::COUNT + i];
}

// Adds this step's rewards to the returns, and stores the returns of an episode that is over. (The return of a single agent is
// stored later, in one record with the episode's length: `commit` in phases.cuh.)
template <class Kind, class Kept>
DEVICE void end_rows(const Team team, Group<Kind>& group, const GroupRows<Kind>& rows, Kept& kept, const size_type row,
                     const int e, const bool over, const bool record, float& sum) {
  FOR_OWN(team, k, i, Kind::COUNT) {
    float& returns = return_at(kept, rows, e, k, i);
    sum = returns + group.reward_row[i];
    if (!ONE_AGENT && record) store_last(rows.episode_return + row * Kind::COUNT + i, sum);
    returns = over ? 0.0f : sum;
  }
}

// Stores the near rows of this step. All stores stand together at its end: spread over the step, each would make the next
// instructions wait, as a store holds its registers. Each member stores only what it wrote itself: before the next sync others
// overwrite theirs with the next step's actions.
template <bool RANDOM, class Kind>
DEVICE void store_rows(const Team team, OnChipRows<Kind>& near, const GroupRows<Kind>& rows, const size_type row) {
  constexpr int COUNT = Kind::COUNT, HEADS = Kind::HEADS;
  if constexpr (TEAM == 1) {
    copy_words<COUNT>(team, rows.reward + row * COUNT, near.reward);
    if constexpr (RANDOM) copy_words<COUNT * HEADS>(team, rows.action + row * (COUNT * HEADS), near.action);
  } else {
    FOR_OWN(team, k, i, COUNT) {
      rows.reward[row * COUNT + i] = near.reward[i];
      if constexpr (RANDOM && FEW_HEADS<Kind>) {
        for (int at = i * HEADS; at < (i + 1) * HEADS; ++at) rows.action[row * (COUNT * HEADS) + at] = near.action[at];
      }
    }
    if constexpr (RANDOM && !FEW_HEADS<Kind>) {
      for (int at : team.each(COUNT * HEADS)) rows.action[row * (COUNT * HEADS) + at] = near.action[at];
    }
  }
}

// Moves the returns from the batch to the workspace and back. Each thread moves those of its own agents.
template <class Kind, class Kept>
DEVICE void load_returns(const Team team, Kept& kept, const GroupRows<Kind>& rows, const int e) {
  if constexpr (HAS_KEPT_ROWS<Kind>) {
    FOR_OWN(team, k, i, Kind::COUNT) kept.returns[kept.slot(k, i)] = rows.returns[(size_type)e * Kind::COUNT + i];
  }
}
template <class Kind, class Kept>
DEVICE void store_returns(const Team team, Kept& kept, const GroupRows<Kind>& rows, const int e) {
  if constexpr (HAS_KEPT_ROWS<Kind>) {
    FOR_OWN(team, k, i, Kind::COUNT) rows.returns[(size_type)e * Kind::COUNT + i] = kept.returns[kept.slot(k, i)];
  }
}
