// env.cuh -- Interface between the functions of an environment and the kernels that call them: `Env&`.
//
// An environment is a .cu file. It defines struct Params and struct State, then includes this file, then defines three functions.
// Every thread of the team that owns the environment calls them (phases.cuh):
//
//   bool step(Env& env)      advance by one step. Reads actions, writes rewards. The task ends if any thread returns true
//   void reset(Env& env)     write a complete initial state. It may run before the previous episode ends, so it reads only
//                            env.random, env.params and env.table
//   void observe(Env& env)   write the observation, which depends only on the state, the parameters and env.elapsed
//
// Before the include, the file may also define
//
//   struct Shared            scratch memory of the team. Undefined when a function begins
//   struct Cache             kept from step to step to save time. Results must not depend on it, because snapshots and checkpoints
//                            omit it
//
// Memory. Members of Env are references to on-chip memory or global memory, according to the launch. A team of one thread may keep
// the state in registers, which cannot be indexed at run time. Declare arrays of `State` or `Shared` as `Array<float, N>`. In
// registers an index then selects among the elements. Otherwise it is an ordinary array (indices.cuh). `team.add` requires such an
// array.
//
// codegen/source.py generates four kinds of code for each environment:
//
//   sizes       TEAM, METRICS, ...
//   groups      a description of each agent group, which reads and draws actions, and each_group, which visits all groups
//   tables      struct Table
//   agreement   assertions that structs have the same layout in C and in Python
#pragma once
#include "drive/random.cuh"
#include "drive/math.cuh"
#include "drive/bits.cuh"
#include "drive/print.cuh"

#if !HAS_SHARED
struct Shared {};
#endif
#if HAS_CACHE
#define CACHE_FROM(place) place,  // initializer of the optional member `cache` of Env
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
// IF_TABLE(NAME, statement) expands to the statement if the parameters provide a table NAME, and otherwise to nothing. If they do,
// the generated macro GIVEN_NAME ends with a comma, which makes the statement the second argument of SECOND. Otherwise the second
// argument is empty.
#define IF_TABLE(name, statement) SECOND_OF(GIVEN_##name statement, , )
#define SECOND_OF(...) SECOND(__VA_ARGS__)
#define SECOND(first, second, ...) second

// Messages of static assertions, for calls that require a flag of the description. codegen/diagnostics.py inserts the group's name.
#define NO_MASKS "this group writes masks; give its Group mask=True"
#define NO_BOX "this group has no Box of actions"
#define NO_LEAVING "this group says who leaves; give its Group leaves=True"
#define NO_CRITIC "this group writes observations of a critic; give its Group critic_obs_dim"

// Return an action of a Box, with NaN read as 0.
DEVICE float read_box(float action) { return action == action ? action : 0.0f; }

// One group of agents with equal spaces, as `env.NAME`. Kind is its generated description: COUNT agents, each with OBS entries of
// observation and HEADS numbers of action. Pointers refer to the rows of this environment. Rewards are 0 when `step` begins.
template <class Kind> struct Group {
  typedef typename Kind::Action Action;
  static constexpr int COUNT = Kind::COUNT, OBS = Kind::OWN_OBS, HEADS = Kind::HEADS;
  typename Kind::ObsRows::OnChip* obs_row;  // (COUNT, OBS)
  float* reward_row;     // (COUNT)
  const Action* action_row;  // (COUNT, HEADS)
  // The next three are null in groups without the feature. The functions that use them assert that the group has it. The class does
  // not, so that an environment can exclude such a call with `if constexpr`.
  u8* active_row;        // (COUNT), groups whose agents may leave: 1 if the agent is active
  u8* left_row;          // (COUNT), the same groups: 1 if the agent leaves in this step
  u8* mask_row;          // (COUNT, choices of all heads), groups with action masks: 1 if the choice is allowed
  float* critic_row;     // (COUNT, CRITIC), or null if no policy reads it

  // Observation of agent i, OBS entries, which `observe` writes. A pointer, or an object that is indexed like one.
  DEVICE auto obs(int i CALLER) const {
    CHECK_INDEX(i, COUNT, "agent (observation)");
    return Kind::ObsRows::at(obs_row, i);
  }
  // Observation of a centralized critic for agent i, CRITIC entries, which `observe` writes. Writes have no effect if no policy
  // reads it.
  DEVICE CriticRow critic_obs(int i CALLER) const {
    static_assert(Kind::CRITIC > 0, NO_CRITIC);
    CHECK_INDEX(i, COUNT, "agent (critic observation)");
    return {critic_row == nullptr ? nullptr : critic_row + (size_type)i * Kind::CRITIC, Kind::CRITIC};
  }
  // Reward of agent i, which `step` writes.
  DEVICE float& reward(int i CALLER) const {
    CHECK_ROW(reward_row, "a reward is written outside of `step`");
    CHECK_INDEX(i, COUNT, "agent (reward)");
    return reward_row[i];
  }

  // Action of a discrete head of agent i, clamped to [0, size). In groups with only a Box: entry `head` of the Box, as by box().
  DEVICE auto action(int i, int head = 0 CALLER) const {
    CHECK_ROW(action_row, "an action is read outside of `step`");
    CHECK_INDEX(i, COUNT, "agent (action)"); CHECK_INDEX(head, Kind::DISCRETE > 0 ? Kind::DISCRETE : HEADS, "action head");
    return Kind::read(action_row[(size_type)i * HEADS + head], head);
  }
  // Entry k of the Box of agent i, with NaN read as 0. The Box follows the discrete heads, if there are any.
  DEVICE float box(int i, int k = 0 CALLER) const {
    static_assert(Kind::DISCRETE < HEADS, NO_BOX);
    CHECK_ROW(action_row, "an action is read outside of `step`");
    CHECK_INDEX(i, COUNT, "agent (box)"); CHECK_INDEX(k, HEADS - Kind::DISCRETE, "number of a box");
    return read_box(action_row[(size_type)i * HEADS + Kind::DISCRETE + k]);
  }
  // Whether a choice is allowed in the next step. `observe` writes it for every choice of every agent. If no choice of a head is
  // allowed, all are.
  DEVICE u8& mask(int i, int choice, int head = 0 CALLER) const {
    static_assert(Kind::MASKED, NO_MASKS);
    CHECK_ROW(mask_row, "a mask is written outside of `observe`");
    CHECK_INDEX(i, COUNT, "agent (mask)"); CHECK_INDEX(head, HEADS, "action head (mask)");
    CHECK_INDEX(choice, Kind::size(head), "choice (mask)");
    return mask_row[(size_type)i * Kind::CHOICES + Kind::first_choice(head) + choice];
  }
  // Allow every choice of every agent, by the whole team, with 4-byte stores if the masks are a multiple of 4 bytes. Call `sync`
  // before a thread forbids choices.
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
  // Whether agent i is active, which `step` writes.
  DEVICE u8& active(int i CALLER) const {
    static_assert(Kind::LEAVES, NO_LEAVING);
    CHECK_ROW(active_row, "`active` is written outside of `step`");
    CHECK_INDEX(i, COUNT, "agent (active)");
    return active_row[i];
  }
  // Whether agent i leaves in this step, which `step` writes.
  DEVICE u8& left(int i CALLER) const {
    static_assert(Kind::LEAVES, NO_LEAVING);
    CHECK_ROW(left_row, "`left` is written outside of `step`");
    CHECK_INDEX(i, COUNT, "agent (left)");
    return left_row[i];
  }
};

// Return an action of a discrete head, clamped to [0, size).
DEVICE int read_discrete(int action, int size) { return math::clamp(action, 0, size - 1); }  // mutant(swapped arguments): commutes
DEVICE int read_discrete(float action, int size) { return read_discrete(math::to_int(action), size); }
// Draw uniformly from the allowed choices of one head, or from all choices if none is allowed. word: random bits.
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

// What the functions of an environment receive. Each group is a member `env.NAME`, by EachGroup.
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
  Metrics metrics;       // counts of this thread, which phases.cuh adds over the team

#if PRINTS
  Printed* printed = nullptr;  // null: this environment does not print
  // Print a line, like printf: env.print("x = %g", env.state.x). Only the leader of one environment prints. VectorEnv.print_env
  // selects the environment. Python prints the lines after the launch, on CPU and GPU. Values are floats, integers, or convert to
  // one, such as elements of arrays and entries of observations.
  template <class... Values> DEVICE void print(const char* format, Values... values) const {
    if (printed != nullptr && team.leader()) printed->line(elapsed, format, (Values&&)values...);
  }
#endif

  // Fraction of the time limit that has elapsed, in [0, 1].
  DEVICE float time() const { return horizon.of((float)elapsed); }
  // Random stream that is the same for every environment and episode, for layouts with `start="fixed"`.
  DEVICE Random fixed_random() const { return {random.seed, 0, 0, random.step, random.purpose}; }
};
