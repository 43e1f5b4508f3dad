// groups.cuh -- One group of agents of one environment: its rows of the batch, and the operations on them that phases.cuh calls.
#pragma once
#include "drive/env.cuh"

// With one agent, return and length of an episode are adjacent, in one record of 8 bytes, so that storing both touches one memory
// sector instead of two.
constexpr int RECORD = ONE_AGENT ? 2 : 1;  // stride in words between the rows of episode_return and episode_length

template <class Kind> struct GroupRows {
  typedef typename Kind::Action Action;
  typedef typename Kind::ObsRows::Global Obs;
  Obs* obs;                  // (T, N, C, OBS) after each step, after an autoreset if there was one
  const Obs* current_obs;    // (N, C, OBS) before the first step (rollout: copied to the row before obs)
  Obs* final_obs;            // (T, N, C, OBS) or null. Rows are written where an episode ended
  float* critic_obs;         // (T, N, C, CRITIC) after each step, or null if no policy reads it
  float* final_critic_obs;   // (T, N, C, CRITIC) or null. Rows are written where an episode ended
  float* reward;             // (T, N, C)
  float* returns;            // (N, C) reward since the episode began
  float* episode_return;     // (T, N, C) * RECORD. Rows are written where an episode ended
  Action* action;            // (T, N, C, HEADS)
  u8* action_mask;           // (T, N, C, choices): allowed choices after each step, in groups with masks. Row -1: before the
                             // first step
  u8* active;                // (T, N, C) before the step   } groups whose agents may leave
  u8* left;                  // (T, N, C) in this step      }
  int packed;                // whether observations of bool are bits, (..., C, WORDS) words, or bytes
  int current_packed;        // the same for `current_obs`
};

// Random bits of one head for four steps: four 32-bit integers or, if PACKED, the four actions themselves, one byte each. PACKED
// requires heads of at most 256 choices without a mask. A team of one packs only in kernels for many environments, because packing
// takes time.
template <class Kind> constexpr bool PACKED = Kind::BYTES && (TEAM > 1 || OBSERVATIONS == OBS_WARP_COPY);
template <bool BYTES> struct Drawn {
  alignas(16) Random::Bits bits;

  template <class Kind> DEVICE void draw(const Random::Bits& drawn, const int) { bits = drawn; }
  template <class Kind> DEVICE auto action(const u32 word_of_four, const int head, const u8* mask) const {
    // A team of one has the words in registers, and selects among them. Shared memory can be indexed.
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

// Whether the loop over an agent's heads is unrolled when actions are drawn. For 100 heads unrolled code would take 300 kB.
template <class Kind> constexpr bool FEW_HEADS = Kind::HEADS <= FEW_OWN;

// Data that are kept from step to step, and that no function of an environment reads: returns so far, and random bits of the next
// actions. SLOTS: number of agents, either all of the group or only those of one thread.
struct NoRows {};
template <class Kind, int SLOTS> struct KeptRows {
  float returns[SLOTS];
  Drawn<PACKED<Kind>> drawn[SLOTS * Kind::HEADS];

  // Slot of agent i, the thread's k-th agent.
  static DEVICE int slot(const int k, const int i) { return SLOTS == own_count(Kind::COUNT) ? k : i; }
};
// Whether each thread keeps the rows of its agents in registers (`advance_env`) instead of the workspace. Words that are not packed
// stay in the workspace of a team, because the step selects one of four by an index. A CPU's workspace is on the stack anyway.
template <class Kind> constexpr bool OWN =
    // mutant(swap <=, swap ==, swap &&, swap ?, constant): speed only
    TEAM == 1 ? ROWS_ON_CHIP && REGISTERS_HAVE_NO_INDEX && sizeof(KeptRows<Kind, own_count(Kind::COUNT)>) <= MOST_LOCAL_BYTES
              : PACKED<Kind> && FEW_HEADS<Kind> && own_count(Kind::COUNT) <= FEW_OWN;  // mutant(swap <=, swap &&): speed only
template <class Kind> using OwnRows = typename Choose<OWN<Kind>, KeptRows<Kind, own_count(Kind::COUNT)>, NoRows>::type;

// Rows that are on chip during a launch (batch.cuh). Without ROWS_ON_CHIP this is NoRows: rewards and actions are in global memory.
// If threads have many agents, returns are in global memory, too, and random bits are drawn in every step.
template <class Kind> struct OnChipRows {
  alignas(16) float reward[Kind::COUNT];
  alignas(16) typename Kind::Action action[Kind::COUNT * Kind::HEADS];
  typename Choose<OWN<Kind>, NoRows, KeptRows<Kind, Kind::COUNT>>::type kept;
};
template <class Kind> using WorkRows = typename Choose<ROWS_ON_CHIP, OnChipRows<Kind>, NoRows>::type;

// The KeptRows of a group, if there are any (HAS_KEPT_ROWS): a thread's own, or those in the workspace.
template <class Kind> constexpr bool HAS_KEPT_ROWS = OWN<Kind> || ROWS_ON_CHIP;
template <class Kept, class OnChip> DEVICE Kept& kept_rows(Kept& own, OnChip&) { return own; }
template <class Kind> DEVICE auto& kept_rows(NoRows&, OnChipRows<Kind>& on_chip) { return on_chip.kept; }

// Whether the given actions of the next step are prefetched: by a team of one.
constexpr bool FETCHED = TEAM == 1 && ROWS_ON_CHIP;  // mutant(swap ==): speed only
template <class Kind>
DEVICE void fetch_actions_of(const Team team, OnChipRows<Kind>& on_chip, const GroupRows<Kind>& rows, const size_type row) {
  copy_words<Kind::COUNT * Kind::HEADS>(team, on_chip.action, rows.action + row * (Kind::COUNT * Kind::HEADS));
}

// Call visit(k, i, head) for the heads whose actions this thread draws, where agent i is the thread's k-th one. Few heads are those
// of the thread's own agents. Many heads are dealt to the threads in turn, which balances the work and coalesces the stores.
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

// Draw the random bits of the actions of the next four steps (struct Drawn).
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

// Set the actions of this step that `env.NAME.action` reads: drawn at random, or those of the batch.
template <bool RANDOM, class Kind, class OnChip, class Kept>
DEVICE void take_actions(const Team team, Group<Kind>& group, const GroupRows<Kind>& rows, OnChip& on_chip, Kept& kept,
                         const size_type row, const Random& random, const u32 word_of_four, const int num_envs) {
  constexpr int COUNT = Kind::COUNT, HEADS = Kind::HEADS;
  typename Kind::Action* action = rows.action + row * (COUNT * HEADS);
  if constexpr ((RANDOM && ROWS_ON_CHIP) || FETCHED) action = on_chip.action;
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

// Set the group's row pointers to row (t, e), and its rewards to 0.
template <class Kind, class OnChip>
DEVICE void begin_rows(const Team team, Group<Kind>& group, const GroupRows<Kind>& rows, OnChip& on_chip, const size_type row) {
  if constexpr (ROWS_ON_CHIP) group.reward_row = on_chip.reward;
  else group.reward_row = rows.reward + row * Kind::COUNT;
  if constexpr (Kind::LEAVES) {
    group.active_row = rows.active + row * Kind::COUNT;
    group.left_row = rows.left + row * Kind::COUNT;
  }
  FOR_OWN(team, k, i, Kind::COUNT) group.reward_row[i] = 0.0f;
}

// Return so far of agent i of environment e. This is the thread's k-th agent.
template <class Kind, class Kept>
DEVICE float& return_at(Kept& kept, const GroupRows<Kind>& rows, const int e, const int k, const int i) {
  if constexpr (HAS_KEPT_ROWS<Kind>) return kept.returns[kept.slot(k, i)];
  else return rows.returns[(size_type)e * Kind::COUNT + i];
}

// Add the rewards of this step to the returns, and store the returns of an episode that is over. The return of a single agent is
// stored later, in one record with the episode's length (`commit` in phases.cuh).
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

// Store the on-chip rows of this step. All stores are at the end of the step, because a store holds its registers: stores spread
// over the step would each stall later instructions. Each thread stores only entries that it wrote itself. No sync follows, so that
// other threads may already overwrite theirs with the actions of the next step.
template <bool RANDOM, class Kind>
DEVICE void store_rows(const Team team, OnChipRows<Kind>& on_chip, const GroupRows<Kind>& rows, const size_type row) {
  constexpr int COUNT = Kind::COUNT, HEADS = Kind::HEADS;
  if constexpr (TEAM == 1) {
    copy_words<COUNT>(team, rows.reward + row * COUNT, on_chip.reward);
    if constexpr (RANDOM) copy_words<COUNT * HEADS>(team, rows.action + row * (COUNT * HEADS), on_chip.action);
  } else {
    FOR_OWN(team, k, i, COUNT) {
      rows.reward[row * COUNT + i] = on_chip.reward[i];
      if constexpr (RANDOM && FEW_HEADS<Kind>) {
        for (int at = i * HEADS; at < (i + 1) * HEADS; ++at) rows.action[row * (COUNT * HEADS) + at] = on_chip.action[at];
      }
    }
    if constexpr (RANDOM && !FEW_HEADS<Kind>) {
      for (int at : team.each(COUNT * HEADS)) rows.action[row * (COUNT * HEADS) + at] = on_chip.action[at];
    }
  }
}

// Load the returns of the thread's own agents from the batch, and store them again.
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
