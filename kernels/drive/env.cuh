// env.cuh -- Interface between an environment's functions and the kernels: `Env&`. An environment's file includes it after its
// structs, and defines
//
//   bool step(Env& env)      one step. Every thread returns whether the task has ended, and phases.cuh takes the OR
//   void reset(Env& env)     writes a complete initial state. Reads only env.random, env.params and env.table, because it may run
//                            before the episode ends
//   void observe(Env& env)   writes the observation, which depends only on the state and on env.elapsed
//
// Before the include, the file may define struct Shared, scratch memory of the team, and struct Cache, which is kept from step to
// step. Results must not depend on the content of a Cache: it is in no snapshot or checkpoint.
//
// If one thread steps an environment of few agents, the state is in registers, which have no dynamic index. An `Array<float, N>` in
// `State` or `Shared` can be indexed nevertheless: in registers it selects among its elements, otherwise it is an ordinary array
// (indices.cuh). `team.add` requires such an array.
//
// codegen/source.py generates sizes (TEAM, METRICS ...), groups (for each a description, which reads and draws actions, and
// each_group), tables (struct Table) and agreement (assertions that structs have the same layout in C and in Python).
#pragma once
#include "drive/random.cuh"
#include "drive/math.cuh"
#include "drive/bits.cuh"
#include "drive/print.cuh"

#if !HAS_SHARED
struct Shared {};
#endif
#if HAS_CACHE
#define CACHE_FROM(place) place,  // in the initializer list of an Env
#define CACHE_BYTES sizeof(Cache)
#else
struct Cache {};
#define CACHE_FROM(place)
#endif
#if HAS_TABLES
#include "drive/tables.cuh"
#define TABLE_FROM(place) place,
#else
#define TABLE_FROM(place)
#endif
// IF_TABLE(NAME, statement): the statement if these parameters provide a table NAME, otherwise nothing. If they do, GIVEN_NAME is
// defined with a comma at its end, which makes the statement the second argument of SECOND. Otherwise the second one is empty.
#define IF_TABLE(name, statement) SECOND_OF(GIVEN_##name statement, , )
#define SECOND_OF(...) SECOND(__VA_ARGS__)
#define SECOND(first, second, ...) second

// Messages of static assertions, for calls that require a flag of the description. codegen/diagnostics.py inserts the group's name.
#define NO_MASKS "this group writes masks; give its Group mask=True"
#define NO_BOX "this group has no Box of actions"
#define NO_LEAVING "this group says who leaves; give its Group leaves=True"
#define NO_CRITIC "this group writes observations of a critic; give its Group critic_obs_dim"

DEVICE float read_box(float action) { return action == action ? action : 0.0f; }

// One group of agents with equal spaces, as `env.NAME`. Kind is its generated description: COUNT agents, each with OBS entries of
// observation and HEADS action numbers. Rewards are 0 when `step` begins. Pointers are those of this environment's rows.
template <class Kind> struct Group {
  typedef typename Kind::Action Action;
  static constexpr int COUNT = Kind::COUNT, OBS = Kind::OWN_OBS, HEADS = Kind::HEADS;
  typename Kind::ObsRows::OnChip* obs_row;  // (COUNT, OBS)
  float* reward_row;     // (COUNT)
  const Action* action_row;  // (COUNT, HEADS)
  // The next three are null in groups without the feature. Assertions are in the functions that use them, not in the class, so that
  // an environment can exclude such a call with `if constexpr`.
  u8* active_row;        // (COUNT), groups whose agents may leave
  u8* left_row;          // (COUNT), likewise
  u8* mask_row;          // (COUNT, choices of all heads), groups with action masks
  float* critic_row;     // (COUNT, CRITIC), or null if no policy reads it

  DEVICE auto obs(int i CALLER) const {
    CHECK_INDEX(i, COUNT, "agent (observation)");
    return Kind::ObsRows::at(obs_row, i);
  }
  // Agent i's row of a centralized critic's observations, which `observe` writes next to obs(i). It has CRITIC entries.
  DEVICE CriticRow critic_obs(int i CALLER) const {
    static_assert(Kind::CRITIC > 0, NO_CRITIC);
    CHECK_INDEX(i, COUNT, "agent (critic observation)");
    return {critic_row == nullptr ? nullptr : critic_row + (size_type)i * Kind::CRITIC, Kind::CRITIC};
  }
  DEVICE float& reward(int i CALLER) const {
    CHECK_ROW(reward_row, "a reward is written outside of `step`");
    CHECK_INDEX(i, COUNT, "agent (reward)");
    return reward_row[i];
  }

  // Action of a discrete head, in [0, size) for any input. In groups with only a Box: the input, with NaN read as 0.
  DEVICE auto action(int i, int head = 0 CALLER) const {
    CHECK_ROW(action_row, "an action is read outside of `step`");
    CHECK_INDEX(i, COUNT, "agent (action)"); CHECK_INDEX(head, Kind::DISCRETE > 0 ? Kind::DISCRETE : HEADS, "action head");
    return Kind::read(action_row[(size_type)i * HEADS + head], head);
  }
  // Entry k of the Box, which follows any discrete heads. NaN is read as 0.
  DEVICE float box(int i, int k = 0 CALLER) const {
    static_assert(Kind::DISCRETE < HEADS, NO_BOX);
    CHECK_ROW(action_row, "an action is read outside of `step`");
    CHECK_INDEX(i, COUNT, "agent (box)"); CHECK_INDEX(k, HEADS - Kind::DISCRETE, "number of a box");
    return read_box(action_row[(size_type)i * HEADS + Kind::DISCRETE + k]);
  }
  // Whether a choice is allowed in the next step. `observe` writes it for every choice of every agent. A head without any allowed
  // choice allows all.
  DEVICE u8& mask(int i, int choice, int head = 0 CALLER) const {
    static_assert(Kind::MASKED, NO_MASKS);
    CHECK_ROW(mask_row, "a mask is written outside of `observe`");
    CHECK_INDEX(i, COUNT, "agent (mask)"); CHECK_INDEX(head, HEADS, "action head (mask)");
    CHECK_INDEX(choice, Kind::size(head), "choice (mask)");
    return mask_row[(size_type)i * Kind::CHOICES + Kind::first_choice(head) + choice];
  }
  // Allow every choice of every agent, by the whole team, with 4-byte stores if rows consist of words. After the next sync, any
  // thread may forbid choices.
  DEVICE void allow_all(const Team team CALLER) const {
    static_assert(Kind::MASKED, NO_MASKS);
    CHECK_ROW(mask_row, "masks are written outside of `observe`");
    constexpr int BYTES = COUNT * Kind::CHOICES;
    if constexpr (BYTES % 4 == 0) {
      for (int n : team.each(BYTES / 4)) ((u32*)mask_row)[n] = 0x01010101u;
    } else {
      for (int n : team.each(BYTES)) mask_row[n] = 1;
    }
  }
  DEVICE u8& active(int i CALLER) const {
    static_assert(Kind::LEAVES, NO_LEAVING);
    CHECK_ROW(active_row, "`active` is written outside of `step`");
    CHECK_INDEX(i, COUNT, "agent (active)");
    return active_row[i];
  }
  DEVICE u8& left(int i CALLER) const {
    static_assert(Kind::LEAVES, NO_LEAVING);
    CHECK_ROW(left_row, "`left` is written outside of `step`");
    CHECK_INDEX(i, COUNT, "agent (left)");
    return left_row[i];
  }
};

DEVICE int read_discrete(int action, int size) { return math::clamp(action, 0, size - 1); }  // mutant(swapped arguments): commutes
DEVICE int read_discrete(float action, int size) { return read_discrete(math::to_int(action), size); }
// The r-th allowed choice of one head, with r uniform, or of all choices if none is allowed.
DEVICE int draw_allowed(u32 word, const u8* mask, int size) {
  int allowed = 0;
  for (int k = 0; k < size; ++k) allowed += mask[k] != 0;
  int wanted = Random::below(word, allowed == 0 ? size : allowed);
  if (allowed == 0 || allowed == size) return wanted;
  for (int k = 0; k < size; ++k) {  // mutant(swap <): returns before
    if (mask[k] != 0 && wanted-- == 0) return k;
  }
  return 0;  // mutant(constant): never reached
}
#include "generated/groups.cuh"
#include "generated/metrics.cuh"

struct Env : EachGroup<Group> {
  const Team team;
  State& state;
  Shared& shared;        // scratch memory: its content is undefined when `step`, `reset` or `observe` begins
#if HAS_CACHE
  Cache& cache;          // kept from step to step, only for speed: results do not depend on its content
#endif
  const Params& params;
#if HAS_TABLES
  const Table& table;    // read-only arrays that all environments share: env.table.NAME[i], env.table.NAME(i, j)
#endif
  Random random;         // the stream of this environment, episode and step
  int elapsed;           // steps since the episode began, including the current one in `step`
  const int max_episode_steps;
  const math::Divisor horizon;  // divides by max_episode_steps
  bool last_step;        // in `step`: the time limit ends the episode with this step
  Metrics metrics;

#if PRINTS
  Printed* printed = nullptr;  // null: this environment does not print
  // printf for one environment of the batch, only by the leader: env.print("x = %g", env.state.x). VectorEnv.print_env selects the
  // environment. Python prints the lines after the launch, on CPU and GPU. Values are floats and integers, or convert to one, such
  // as elements of arrays and entries of observations.
  template <class... Values> DEVICE void print(const char* format, Values... values) const {
    if (printed != nullptr && team.leader()) printed->line(elapsed, format, (Values&&)values...);
  }
#endif

  DEVICE float time() const { return horizon.of((float)elapsed); }  // in [0, 1]
  // Random stream of layouts with `start="fixed"`: the same for every environment and episode.
  DEVICE Random fixed_random() const { return {random.seed, 0, 0, random.step, random.purpose}; }
};
