// drive.cuh -- the only kernels: env_reset, env_step, env_rollout, of any environment.
//
// Everything that all environments share is here: loading and storing the state, the time limit, autoreset in the
// same step (Gymnasium's SAME_STEP), final_obs, episode return, length and metrics, random actions.
// Letters: T steps, N environments, C agents of a group. Row (t, e) of an array (T, N, ...) is t * N + e.
#pragma once
#include "drive/groups.cuh"

struct Batch {
  Params params;
  int num_envs, first_env;   // N; the global id of environment 0
  int steps;                 // T; 0 in env_reset: begin nothing, observe the state that is there
  int max_episode_steps;
  float inverse_horizon;     // 1 / max_episode_steps
  const u64* seed;           // (1)
  State* state;              // (N)
  Clock* clock;              // (N)
  Log* log;                  // (N) counts since the episode began
  const u8* mask;            // (N) or null (all): which env_reset resets, and which env_step may reset at an end
  u8* terminated;            // (T, N)
  u8* truncated;             // (T, N)
  int* episode_length;       // (T, N) * RECORD; rows written where an episode ended
  Log* episode_log;          // (T, N); likewise
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) GroupRows<ACTION> NAME;
  GROUPS(MEMBER)
#undef MEMBER
  Printed* printed;          // null unless the kernel prints
};

// What one environment keeps near while a launch runs: in registers or on the stack for a team of one, in shared
// memory for larger teams; what does not fit (STATE_NEAR, ROWS_NEAR, OBS_NEAR are 0) stays in global memory.
struct alignas(16) NearState { State value; };
struct Hidden {  // from an environment's functions
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) \
  Choose<ROWS_NEAR && !own_drawn(COUNT, PACKED<NAME##_space>), TeamDrawn<NAME##_space, COUNT, HEADS>, NoRows>::type NAME;
  GROUPS(MEMBER)
#undef MEMBER
};
struct Own {  // of one member, in registers
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) \
  Choose<few_own(COUNT), OwnReturns<COUNT>, NoRows>::type NAME; \
  Choose<own_drawn(COUNT, PACKED<NAME##_space>), OwnDrawn<NAME##_space, COUNT, HEADS>, NoRows>::type NAME##_drawn;
  GROUPS(MEMBER)
#undef MEMBER
};
template <class Rows> DEVICE Rows& either(Rows& own, NoRows&) { return own; }
template <class Rows> DEVICE Rows& either(NoRows&, Rows& hidden) { return hidden; }
DEVICE NoRows& either(NoRows& own, NoRows&) { return own; }
struct Contents {
  Choose<STATE_NEAR, NearState, NoRows>::type state;
  Hidden hidden;
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) Choose<ROWS_NEAR, NearRows<COUNT, HEADS, ACTION>, NoRows>::type NAME;
  GROUPS(MEMBER)
#undef MEMBER
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) alignas(16) obs_t NAME##_obs[OBS_NEAR && !SIDE_OBS ? COUNT * OBS : 4];
  GROUPS(MEMBER)
#undef MEMBER
  Shared shared;
};

// Teams of one warp have their workspaces side by side in shared memory, which is 32 banks of 4 bytes. Of sizes that are
// TEAM words more than a multiple of 32 banks, no two members touch the same bank where all read their own agent.
#ifdef __CUDACC__
constexpr int BANK_WORDS = TEAM < 4 ? 4 : TEAM;
constexpr int SPARE_WORDS = TEAM == 1 || TEAM >= 32 ? 0 : (32 + BANK_WORDS - (int)(sizeof(Contents) / 4) % 32) % 32;
#else
constexpr int SPARE_WORDS = 0;
#endif
template <int WORDS> struct Spare { int word[WORDS]; };
template <> struct Spare<0> {};
struct Workspace : Contents { [[maybe_unused]] Spare<SPARE_WORDS> spare; };

// ---- one environment -----------------------------------------------------------------------------------------------

// Whether starts are drawn ahead, by all lanes of a warp together when one needs its own. Without this nearly every step
// of 32 environments runs `reset` for the one that ended, and 31 lanes wait.
#ifdef __CUDACC__
constexpr bool AHEAD = TEAM == 1 && STATE_NEAR && !HAS_SHARED && sizeof(State) <= 64 && !PRINTS;
#else
constexpr bool AHEAD = false;
#endif

// The near observations of this environment; SIZE = 0: of the first one of the warp.
#if SIDE_OBS
#define NEAR_OBS(NAME, SIZE) (side_obs().NAME##_obs + threadIdx.x % 32 * (SIZE))
#else
#define NEAR_OBS(NAME, SIZE) work.NAME##_obs
#endif

// On a CPU what an environment with a Shared of its own does is compiled once for both kernels, which is most of the compiler's
// work; smaller ones are up to a third faster within each kernel.
#ifdef __CUDACC__
#define ONCE(type, name) DEVICE type name##_once(Env& env) { return name(env); }
#else
#define ONCE(type, name)                                                              \
  __attribute__((noinline)) inline type name##_apart(Env& env) { return name(env); }  \
  DEVICE type name##_once(Env& env) {                                                 \
    ENTER(name);                                                                      \
    if constexpr (HAS_SHARED) return name##_apart(env);                               \
    else return name(env);                                                            \
  }
#endif
ONCE(bool, step)
ONCE(void, observe)
ONCE(void, reset)
#undef ONCE

// Observes into row `row` of the arrays that `which` picks (obs or final_obs); what is near waits for `store_obs`.
template <class Which>
DEVICE void observe_into(Env& env, const Batch& batch, Workspace& work, const size_type row, Which which) {
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) \
  env.NAME.obs_row = OBS_NEAR ? NEAR_OBS(NAME, COUNT * OBS) : which(batch.NAME) + row * (COUNT * OBS); \
  if constexpr (NAME##_space::MASKED) env.NAME.mask_row = batch.NAME.action_mask + row * (COUNT * NAME##_space::CHOICES);
  GROUPS(MEMBER)
#undef MEMBER
  observe_once(env);
  env.team.sync();
}

template <class Which>
DEVICE void store_obs(Env& env, const Batch& batch, Workspace& work, const size_type row, Which which) {
  if constexpr (OBS_NEAR) {
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) \
    copy_obs<COUNT * OBS, true>(env.team, which(batch.NAME) + row * (COUNT * OBS), NEAR_OBS(NAME, COUNT * OBS));
    GROUPS(MEMBER)
#undef MEMBER
  }
}

DEVICE void begin_episode(Env& env, Clock& clock) {
  clock.elapsed = 0;
  env.elapsed = 0;
  env.log = Log{};
  env.random.episode = clock.episode; env.random.step = 0; env.random.purpose = RESET;
  reset_once(env);
  env.team.sync();
}

// Draws the state that the next episode begins with.
DEVICE void draw_start(const Env& env, const Clock& clock, State& start) {
  Env fresh{env.team, start, env.shared, env.params, Random{env.random.seed, env.random.env, clock.episode, 0u, RESET}, 0,
            env.max_episode_steps, env.horizon, false, Log{}};
  reset(fresh);
}

// Adds up what the members have counted; every member gets the total.
DEVICE Log total(const Team team, const Log& mine) {
  Log all = mine;
#define int_TOTAL(name) all.name = team.sum(mine.name);
#define float_TOTAL(name)
#define MEMBER(type, name) type##_TOTAL(name)
  METRICS(MEMBER)
#undef MEMBER
#undef int_TOTAL
#undef float_TOTAL
  return all;
}

DEVICE State& near_state(Workspace& work, const Batch& batch, const int e) {
#if STATE_NEAR
  return work.state.value;
#else
  return batch.state[e];
#endif
}

#define MAKE_ENV(clock) \
  Env env{team, near_state(work, batch, e), work.shared, batch.params, \
          Random{*batch.seed, (u32)(batch.first_env + e), clock.episode, 0u, RESET}, clock.elapsed, \
          batch.max_episode_steps, math::Divisor((float)batch.max_episode_steps, batch.inverse_horizon), false, Log{}}; \
  PRINT_FROM(env, batch, e)

// Begins a new episode where the mask says so (everywhere if there is none), or only observes (steps = 0).
DEVICE void reset_env(const Batch& batch, const Team team, Workspace& work, const int e) {
  if (batch.mask != nullptr && !batch.mask[e]) return;
  const bool begin = batch.steps != 0;
  Clock clock = batch.clock[e];
  team.sync();  // all have read the clock
  MAKE_ENV(clock);
  if (begin) {
    begin_episode(env, clock);
  } else if constexpr (STATE_NEAR) {
    copy_words<sizeof(State) / 4>(team, &env.state, batch.state + e);
    team.sync();
  }
  observe_into(env, batch, work, e, [](const auto& rows) { return rows.obs; });
  store_obs(env, batch, work, e, [](const auto& rows) { return rows.obs; });
  if constexpr (STATE_NEAR) copy_words<sizeof(State) / 4>(team, batch.state + e, &env.state);
  if (begin) {
    if (team.leader()) { clock.episode += 1; batch.clock[e] = clock; batch.log[e] = Log{}; }
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) \
    for (int i : team.each(COUNT)) batch.NAME.returns[(size_type)e * COUNT + i] = 0.0f;
    GROUPS(MEMBER)
#undef MEMBER
  }
  team.sync();
}

// Steps [from, until) of one environment, actions given (T, N, ...) or drawn at random.
template <bool RANDOM>
DEVICE void advance_env(const Batch& batch, const Team team, Workspace& work, const int e, const int from, const int until) {
#if BESIDE
  const Beside beside(e, batch.num_envs);
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) \
  const obs_t* const NAME##_before = batch.NAME.current_obs + (size_type)(e - beside.lane) * (COUNT * OBS); \
  if constexpr (RANDOM && SIDE_OBS) beside.begin_copy<COUNT * OBS>(NEAR_OBS(NAME, 0), NAME##_before);
  GROUPS(MEMBER)
#undef MEMBER
#endif
  Clock clock = batch.clock[e];
  MAKE_ENV(clock);
  [[maybe_unused]] Own own;
  if (HAS_METRICS && team.leader()) env.log = batch.log[e];
  if constexpr (STATE_NEAR) copy_words<sizeof(State) / 4>(team, &env.state, batch.state + e);
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) copy_returns<COUNT>(team, own.NAME, batch.NAME, e, true);
  GROUPS(MEMBER)
#undef MEMBER
#if !BESIDE
  const auto copy_current_obs = [&] {
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) \
    copy_obs<COUNT * OBS, false>(team, batch.NAME.obs - (size_type)(batch.num_envs - e) * (COUNT * OBS), \
                                 batch.NAME.current_obs + (size_type)e * (COUNT * OBS));
    GROUPS(MEMBER)
#undef MEMBER
  };
  // Where observations are too many to be near, not all teams copy before the first step: memory is kept busy evenly.
  constexpr bool SPREAD = RANDOM && TEAM > 32 && !OBS_NEAR;
  [[maybe_unused]] const int copied_at = from == 0 ? e % until : -1;
#endif
  if constexpr (RANDOM) if (from == 0) {
#if BESIDE
    if constexpr (SIDE_OBS) beside.end_copies();
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) \
    beside.copy<COUNT * OBS>(batch.NAME.obs - (size_type)(batch.num_envs - e + beside.lane) * (COUNT * OBS), \
                             SIDE_OBS ? NEAR_OBS(NAME, 0) : NAME##_before);
    GROUPS(MEMBER)
#undef MEMBER
    beside.sync();  // the near observations are written again
#else
    if constexpr (!SPREAD) copy_current_obs();
#endif
  }
  const auto fetch = [&](const size_type row) {
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) fetch_actions(team, work.NAME, batch.NAME, row);
    GROUPS(MEMBER)
#undef MEMBER
  };
  if constexpr (!RANDOM && FETCHED) fetch((size_type)from * batch.num_envs + e);
  const auto autoreset = [&] { return RANDOM || batch.mask == nullptr || batch.mask[e]; };
  [[maybe_unused]] NearState start;  // of the next episode, if it is `drawn`
  bool drawn = false;
  u32 has_final = FIRST_GROUP(batch).final_obs != nullptr;
  hold(has_final);
  for (int t = from; t < until; ++t) {
    team.in_step(batch.num_envs);
#if !BESIDE
    if constexpr (SPREAD) if (t == copied_at) copy_current_obs();
#endif
    const u32 word_of_four = clock.time % 4;
    const size_type row = (size_type)t * batch.num_envs + e;
    const Random actions{env.random.seed, env.random.env, 0, clock.time / 4, ACTION};
    int first_agent = 0;
    if (RANDOM && (t == from || word_of_four == 0)) {  // of all agents together: one branch, and none waits for another
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) \
      draw_actions(team, env.NAME, either(own.NAME##_drawn, work.hidden.NAME), actions, first_agent); \
      first_agent += COUNT;
      GROUPS(MEMBER)
#undef MEMBER
      first_agent = 0;
    }
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) \
    take_actions<RANDOM>(team, env.NAME, batch.NAME, work.NAME, either(own.NAME##_drawn, work.hidden.NAME), row, actions, \
                         word_of_four, first_agent, batch.num_envs); \
    begin_step(team, env.NAME, batch.NAME, work.NAME, row); \
    first_agent += COUNT;
    GROUPS(MEMBER)
#undef MEMBER
    clock.elapsed += 1;
    clock.time += 1;
    env.elapsed = clock.elapsed;
    env.last_step = clock.elapsed >= batch.max_episode_steps;
    env.random.episode = clock.episode - 1; env.random.step = clock.elapsed; env.random.purpose = DYNAMICS;
    team.sync();
    const bool ended = team.any(step_once(env));
    const bool over = ended || env.last_step;
    const bool record = team.near_any(over);
    const int length = clock.elapsed;
    float sum = 0.0f;  // of the last agent; all there is to record if it is the only one
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) end_step(team, env.NAME, batch.NAME, own.NAME, row, e, over, record, sum);
    GROUPS(MEMBER)
#undef MEMBER
    const Log counted = HAS_METRICS && over ? total(team, env.log) : Log{};
    if (record && team.leader()) {
      if constexpr (!ONE_AGENT) store_last(batch.episode_length + row, clock.elapsed);
      if constexpr (HAS_METRICS) batch.episode_log[row] = counted;
    }
    if constexpr (AHEAD) {
      if (team.warp_any(over && autoreset() && !drawn)) {  // what others had drawn they draw again
        draw_start(env, clock, start.value);
        drawn = true;
      }
    }
    // What the episode ended with, if it is over and that is wanted; then where the next step begins. One loop, so that a
    // large `observe` is compiled into the kernel once; a small one twice, which spares choosing between the rows.
    constexpr bool SMALL = AHEAD && ONE_AGENT;
    const bool to_final = over && has_final != 0;
    UNROLL_TIMES(SMALL ? 2 : 1) for (int last = SMALL ? 0 : !to_final; last < 2; ++last) {
      if (SMALL && !last && !to_final) continue;
      if (last && over && autoreset()) {
        if constexpr (AHEAD) {
          env.state = start.value;
          drawn = false;
          clock.elapsed = env.elapsed = 0;
          env.log = Log{};
        } else {
          begin_episode(env, clock);
        }
        clock.episode += 1;
      }
      const auto which = [last](const auto& rows) { return last ? rows.obs : rows.final_obs; };
      observe_into(env, batch, work, row, which);
      if (!SIDE_OBS || !last) store_obs(env, batch, work, row, which);
      if (!last) team.sync();  // the near observation is written again
    }
#if SIDE_OBS
    beside.sync();
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) \
    beside.copy<COUNT * OBS>(batch.NAME.obs + (row - beside.lane) * (COUNT * OBS), NEAR_OBS(NAME, 0));
    GROUPS(MEMBER)
#undef MEMBER
    beside.sync();  // the near observations are written again
#endif
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) store_rows<RANDOM>(team, work.NAME, batch.NAME, row);
    GROUPS(MEMBER)
#undef MEMBER
    if (ONE_AGENT && record && team.leader()) store_record(FIRST_GROUP(batch).episode_return + row * RECORD, sum, length);
    if (team.leader()) {
      batch.terminated[row] = HORIZON_ENDS_TASK ? over : ended;
      batch.truncated[row] = !HORIZON_ENDS_TASK && over && !ended;
    }
    if constexpr (!RANDOM && FETCHED) {
      if (t + 1 < until) fetch(row + batch.num_envs);
    }
  }
  team.sync();
  if constexpr (STATE_NEAR) copy_words<sizeof(State) / 4>(team, batch.state + e, &env.state);
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) copy_returns<COUNT>(team, own.NAME, batch.NAME, e, false);
  GROUPS(MEMBER)
#undef MEMBER
  if constexpr (HAS_METRICS) {
    const Log counted = total(team, env.log);
    if (team.leader()) batch.log[e] = counted;
  }
  if (team.leader()) batch.clock[e] = clock;
  team.sync();
}

#include "generated/agreement.cuh"
#include "drive/launch.cuh"

KERNEL(env_reset, Batch, call.num_envs, reset_env(call, team, *work, e))

// Of a CPU: so many steps at a time (launch.cuh). Four, for which actions are drawn together; all where the rows of one
// environment fill pages of their own.
#define MEMBER(NAME, COUNT, OBS, HEADS, ACTION) + COUNT * OBS * (int)sizeof(obs_t)
constexpr int PIECE = GROUPS(MEMBER) < 2048 ? 4 : 0x7fffffff;
#undef MEMBER
#if defined(__CUDACC__) || defined(TEAM_THREADS) || defined(DEBUG_BOUNDS) || defined(COUNT_OPERATIONS) || !ONE_AGENT || PRINTS
KERNEL_OF_STEPS(env_step, Batch, call.num_envs, 1, call.steps, PIECE, advance_env<false>(call, team, *work, e, from, until))
KERNEL_OF_STEPS(env_rollout, Batch, call.num_envs, 1, call.steps, PIECE, advance_env<true>(call, team, *work, e, from, until))
#else
#include "drive/lanes.cuh"
template <bool RANDOM>
DEVICE void advance(const Batch& batch, const Team team, Workspace& work, const int e, const int count, const int from,
                    const int until) {
  if constexpr (SIDE_BY_SIDE) advance_together<RANDOM>(batch, e, count, from, until);
  else advance_env<RANDOM>(batch, team, work, e, from, until);
}
constexpr int AT_ONCE = SIDE_BY_SIDE ? LANES : 1;
KERNEL_OF_STEPS(env_step, Batch, call.num_envs, AT_ONCE, call.steps, PIECE, advance<false>(call, team, *work, e, count, from, until))
KERNEL_OF_STEPS(env_rollout, Batch, call.num_envs, AT_ONCE, call.steps, PIECE, advance<true>(call, team, *work, e, count, from, until))
#endif
