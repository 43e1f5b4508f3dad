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
  EachGroup<GroupRows> rows;
  Printed* printed;          // null unless the kernel prints
};

// What one environment keeps near while a launch runs: in registers or on the stack for a team of one, in shared
// memory for larger teams; what does not fit (STATE_NEAR, ROWS_NEAR, OBS_NEAR are 0) stays in global memory.
struct alignas(16) NearState { State value; };
template <class Kind> using HiddenDrawn =  // from an environment's functions
    typename Choose<ROWS_NEAR && !own_drawn(Kind::COUNT, PACKED<Kind>), TeamDrawn<Kind>, NoRows>::type;
struct Own {  // of one member, in registers
  template <class Kind> using Returns = typename Choose<few_own(Kind::COUNT), OwnReturns<Kind>, NoRows>::type;
  template <class Kind> using Drawn = typename Choose<own_drawn(Kind::COUNT, PACKED<Kind>), OwnDrawn<Kind>, NoRows>::type;
  EachGroup<Returns> returns;
  EachGroup<Drawn> drawn;
};
template <class Rows> DEVICE Rows& either(Rows& own, NoRows&) { return own; }
template <class Rows> DEVICE Rows& either(NoRows&, Rows& hidden) { return hidden; }
DEVICE NoRows& either(NoRows& own, NoRows&) { return own; }
template <class Kind> using WorkRows = typename Choose<ROWS_NEAR, NearRows<Kind>, NoRows>::type;
template <class Kind> struct WorkObs { alignas(16) obs_t obs[OBS_NEAR && !SIDE_OBS ? Kind::COUNT * Kind::OBS : 4]; };
struct Contents {
  Choose<STATE_NEAR, NearState, NoRows>::type state;
  EachGroup<HiddenDrawn> hidden;
  EachGroup<WorkRows> rows;
  EachGroup<WorkObs> obs;
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

// The near observations of this environment. Of whole warps: those of the first environment of the warp, all others behind it.
DEVICE auto& near_obs([[maybe_unused]] Workspace& work) {
#if SIDE_OBS
  return side_obs();
#else
  return work.obs;
#endif
}
// Where those of this environment begin.
template <class Kind, class Near> DEVICE obs_t* own_obs(Near& near) {
#if SIDE_OBS
  return near.obs + threadIdx.x % 32 * (Kind::COUNT * Kind::OBS);
#else
  return near.obs;
#endif
}

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
  each_group([&](auto kind, auto& group, const auto& rows, auto& near) INLINED {
    using Kind = decltype(kind);
    group.obs_row = OBS_NEAR ? own_obs<Kind>(near) : which(rows) + row * (Kind::COUNT * Kind::OBS);
    if constexpr (Kind::MASKED) group.mask_row = rows.action_mask + row * (Kind::COUNT * Kind::CHOICES);
  }, env, batch.rows, near_obs(work));
  observe_once(env);
  env.team.sync();
}

template <class Which>
DEVICE void store_obs(Env& env, const Batch& batch, Workspace& work, const size_type row, Which which) {
  if constexpr (OBS_NEAR) {
    each_group([&](auto kind, const auto& rows, auto& near) INLINED {
      using Kind = decltype(kind);
      constexpr int SIZE = Kind::COUNT * Kind::OBS;
      copy_obs<SIZE, true>(env.team, which(rows) + row * SIZE, own_obs<Kind>(near));
    }, batch.rows, near_obs(work));
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
  Env fresh{{}, env.team, start, env.shared, env.params, Random{env.random.seed, env.random.env, clock.episode, 0u, RESET}, 0,
            env.max_episode_steps, env.horizon, false, Log{}};
  reset(fresh);
}

// Adds up what the members have counted; every member gets the total.
DEVICE Log total(const Team team, const Log& mine) {
  Log all = mine;
  each_count([&](int& count) INLINED { count = team.sum(count); }, all);
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
  Env env{{}, team, near_state(work, batch, e), work.shared, batch.params, \
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
    each_group([&](auto kind, const auto& rows) INLINED {
      for (int i : team.each(kind.COUNT)) rows.returns[(size_type)e * kind.COUNT + i] = 0.0f;
    }, batch.rows);
  }
  team.sync();
}

// Steps [from, until) of one environment, actions given (T, N, ...) or drawn at random.
template <bool RANDOM>
DEVICE void advance_env(const Batch& batch, const Team team, Workspace& work, const int e, const int from, const int until) {
#if BESIDE
  const Beside beside(e, batch.num_envs);
  [[maybe_unused]] const size_type first = e - beside.lane;  // environment of the warp
  if constexpr (RANDOM && SIDE_OBS) {
    each_group([&](auto kind, const auto& rows, auto& near) INLINED {
      constexpr int SIZE = kind.COUNT * kind.OBS;
      beside.begin_copy<SIZE>(near.obs, rows.current_obs + first * SIZE);
    }, batch.rows, near_obs(work));
  }
#endif
  Clock clock = batch.clock[e];
  MAKE_ENV(clock);
  [[maybe_unused]] Own own;
  if (HAS_METRICS && team.leader()) env.log = batch.log[e];
  if constexpr (STATE_NEAR) copy_words<sizeof(State) / 4>(team, &env.state, batch.state + e);
  each_group([&](auto, auto& returns, const auto& rows) INLINED { copy_returns(team, returns, rows, e, true); },
             own.returns, batch.rows);
#if !BESIDE
  const auto copy_current_obs = [&] {
    each_group([&](auto kind, const auto& rows) INLINED {
      constexpr int SIZE = kind.COUNT * kind.OBS;
      copy_obs<SIZE, false>(team, rows.obs - (size_type)(batch.num_envs - e) * SIZE, rows.current_obs + (size_type)e * SIZE);
    }, batch.rows);
  };
  // Where observations are too many to be near, not all teams copy before the first step: memory is kept busy evenly.
  constexpr bool SPREAD = RANDOM && TEAM > 32 && !OBS_NEAR;
  [[maybe_unused]] const int copied_at = from == 0 ? e % until : -1;
#endif
  if constexpr (RANDOM) if (from == 0) {
#if BESIDE
    if constexpr (SIDE_OBS) beside.end_copies();
    each_group([&](auto kind, const auto& rows, auto& near) INLINED {
      constexpr int SIZE = kind.COUNT * kind.OBS;
      beside.copy<SIZE>(rows.obs - (batch.num_envs - first) * SIZE, SIDE_OBS ? near.obs : rows.current_obs + first * SIZE);
    }, batch.rows, near_obs(work));
    beside.sync();  // the near observations are written again
#else
    if constexpr (!SPREAD) copy_current_obs();
#endif
  }
  const auto fetch = [&](const size_type row) {
    each_group([&](auto, auto& near, const auto& rows) INLINED { fetch_actions(team, near, rows, row); }, work.rows, batch.rows);
  };
  if constexpr (!RANDOM && FETCHED) fetch((size_type)from * batch.num_envs + e);
  const auto autoreset = [&] { return RANDOM || batch.mask == nullptr || batch.mask[e]; };
  [[maybe_unused]] NearState start;  // of the next episode, if it is `drawn`
  bool drawn = false;
  u32 has_final = first_group(batch.rows).final_obs != nullptr;
  hold(has_final);
  for (int t = from; t < until; ++t) {
    team.in_step(batch.num_envs);
#if !BESIDE
    if constexpr (SPREAD) if (t == copied_at) copy_current_obs();
#endif
    const u32 word_of_four = clock.time % 4;
    const size_type row = (size_type)t * batch.num_envs + e;
    const Random actions{env.random.seed, env.random.env, 0, clock.time / 4, ACTION};
    if (RANDOM && (t == from || word_of_four == 0)) {  // of all agents together: one branch, and none waits for another
      each_group([&](auto kind, auto& drawn, auto& hidden) INLINED { draw_actions(team, kind, either(drawn, hidden), actions); },
                 own.drawn, work.hidden);
    }
    each_group([&](auto, auto& group, const auto& rows, auto& near, auto& drawn, auto& hidden) INLINED {
      take_actions<RANDOM>(team, group, rows, near, either(drawn, hidden), row, actions, word_of_four, batch.num_envs);
      begin_step(team, group, rows, near, row);
    }, env, batch.rows, work.rows, own.drawn, work.hidden);
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
    each_group([&](auto, auto& group, const auto& rows, auto& returns) INLINED {
      end_step(team, group, rows, returns, row, e, over, record, sum);
    }, env, batch.rows, own.returns);
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
    each_group([&](auto kind, const auto& rows, auto& near) INLINED {
      constexpr int SIZE = kind.COUNT * kind.OBS;
      beside.copy<SIZE>(rows.obs + (row - beside.lane) * SIZE, near.obs);
    }, batch.rows, near_obs(work));
    beside.sync();  // the near observations are written again
#endif
    each_group([&](auto, auto& near, const auto& rows) INLINED { store_rows<RANDOM>(team, near, rows, row); }, work.rows, batch.rows);
    if (ONE_AGENT && record && team.leader()) store_record(first_group(batch.rows).episode_return + row * RECORD, sum, length);
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
  each_group([&](auto, auto& returns, const auto& rows) INLINED { copy_returns(team, returns, rows, e, false); },
             own.returns, batch.rows);
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
constexpr int PIECE = OBS_ENTRIES * (int)sizeof(obs_t) < 2048 ? 4 : 0x7fffffff;
#if defined(__CUDACC__) || defined(TEAM_THREADS) || defined(DEBUG_BOUNDS) || defined(COUNT_OPERATIONS) || !ONE_AGENT || PRINTS
KERNEL_OF_STEPS(env_step, Batch, call.num_envs, 1, call.steps, PIECE, advance_env<false>(call, team, *work, e, from, until))
KERNEL_OF_STEPS(env_rollout, Batch, call.num_envs, 1, call.steps, PIECE, advance_env<true>(call, team, *work, e, from, until))
#else
#include "drive/simd.cuh"
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
