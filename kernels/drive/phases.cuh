// phases.cuh -- The phases of step.cuh for one environment, by a team of one or more threads.
#pragma once
#include "drive/step.cuh"

// Whether all lanes of a warp draw the initial state of their next episode together, as soon as one lane has consumed its own.
// Otherwise nearly every step of 32 environments would run `reset` for one of them while 31 lanes wait.
#ifdef __CUDACC__
constexpr bool AHEAD = TEAM == 1 && STATE_ON_CHIP && !HAS_SHARED && !HAS_CACHE && sizeof(State) <= 64 && !PRINTS;
#else
constexpr bool AHEAD = false;
#endif

// On a CPU, the functions of an environment with a struct Shared are not inlined, so that all kernels share one copy. They are most
// of the compiler's work. The functions of smaller environments are inlined, which is up to a third faster.
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

// Call `observe` for row `row`. Observations that are on chip are stored later, by `keep` or `commit`.
DEVICE void observe_into(Env& env, const Batch& batch, const Observations& observations, const View view, const size_type row) {
  observations.row(env, view, row);
  each_group([&](auto kind, auto& group, const auto& rows) INLINED {
    if constexpr (kind.MASKED) group.mask_row = rows.action_mask + row * (kind.COUNT * kind.CHOICES);
    if constexpr (kind.CRITIC > 0) {  // mutant(swap >): of no entries none is written
      float* const critic = view == NEXT ? rows.critic_obs : rows.final_critic_obs;
      group.critic_row = critic == nullptr ? nullptr : critic + row * (kind.COUNT * kind.CRITIC);
    }
#ifdef DEBUG_BOUNDS  // what `observe` does not write is NaN or 255
    if constexpr (!kind.BITS) __builtin_memset(group.obs_row, 0xff, kind.COUNT * kind.OBS * sizeof *group.obs_row);
    if constexpr (kind.CRITIC > 0) {
      if (group.critic_row) __builtin_memset(group.critic_row, 0xff, kind.COUNT * kind.CRITIC * sizeof(float));
    }
#endif
  }, env, batch.rows);
  observe_once(env);
  each_group([&](auto kind, const auto& group) INLINED {  // append the agent's one-hot id to its own entries
    if constexpr (kind.AGENT_IDS) {
      for (int n : env.team.each(kind.COUNT * kind.COUNT)) {
        group.obs_row[n / kind.COUNT * kind.OBS + kind.OWN_OBS + n % kind.COUNT] = n / kind.COUNT == n % kind.COUNT;
      }
    }
  }, env);
  env.team.sync();  // observations are written before other threads store them
}

DEVICE void begin_episode(Env& env, Clock& clock) {
  clock.elapsed = 0;
  env.elapsed = 0;
  env.metrics = Metrics{};
  env.random.episode = clock.episode; env.random.step = 0; env.random.purpose = RESET;
  reset_once(env);
  env.team.sync();  // the state is written before other threads observe it
}

// Draw the initial state of the next episode.
DEVICE void draw_start(const Env& env, const Clock& clock, State& start) {
  const Random random{env.random.seed, env.random.env, clock.episode, 0u, RESET};
  Env fresh{{}, env.team, start, env.shared, CACHE_FROM(env.cache) env.params, TABLE_FROM(env.table) random, 0,
            env.max_episode_steps, env.horizon, false, Metrics{}};
  reset(fresh);
}

// Sum the metrics of all threads. Every thread gets the total.
DEVICE Metrics total(const Team team, const Metrics& mine) {
  Metrics all = mine;
  each_count([&](int& count) INLINED { count = team.sum(count); }, all);
  return all;
}

// Copy a struct whose size is a multiple of 4 bytes.
template <class T> DEVICE void copy_struct(const Team team, T& to, const T& from) { copy_words<sizeof(T) / 4>(team, &to, &from); }

DEVICE State& state_in_launch(Workspace& work, const Batch& batch, const int e) {
#if STATE_ON_CHIP
  return work.state.value;
#else
  return batch.state[e];
#endif
}

DEVICE Cache& on_chip_cache(OnChipCache& on_chip, Cache&) { return on_chip.value; }
DEVICE Cache& on_chip_cache(NoRows&, Cache& global) { return global; }

#define MAKE_ENV(clock, cache) \
  Env env{{}, team, state_in_launch(work, batch, e), work.shared, CACHE_FROM(cache) batch.params, TABLE_FROM(batch.table) \
          Random{*batch.seed, (u32)(batch.first_env + e), clock.episode, 0u, RESET}, clock.elapsed,  /* mutant(purpose, constant): every caller sets it */ \
          batch.max_episode_steps, math::Divisor((float)batch.max_episode_steps, batch.inverse_horizon), false, Metrics{}}; \
  PRINT_FROM(env, batch, e)

// Begin a new episode if the mask is null or set for this environment. With steps = 0, only observe the current state.
DEVICE void reset_env(const Batch& batch, const Team team, Workspace& work, const int e) {
  if (batch.mask != nullptr && !batch.mask[e]) return;
  const bool begin = batch.steps != 0;
  Clock clock = batch.clock[e];
  team.sync();  // the clock is read before the leader stores it; mutant(dropped sync): another sync comes before that store
  MAKE_ENV(clock, batch.cache[e]);
  if (begin) {
    begin_episode(env, clock);
  } else if constexpr (STATE_ON_CHIP) {
    copy_struct(team, env.state, batch.state[e]);
    team.sync();  // the state is loaded before other threads observe it
  }
  const Observations observations(team, batch.rows, work.obs, e, batch.num_envs);
  observe_into(env, batch, observations, NEXT, e);
  observations.keep_own(NEXT, e);
  if constexpr (STATE_ON_CHIP) copy_struct(team, batch.state[e], env.state);
  if (begin) {
    if (team.leader()) { clock.episode += 1; batch.clock[e] = clock; batch.metrics[e] = Metrics{}; }
    each_group([&](auto kind, const auto& rows) INLINED {
      for (int i : team.each(kind.COUNT)) rows.returns[(size_type)e * kind.COUNT + i] = 0.0f;
    }, batch.rows);
  }
  team.sync();  // the workspace is read before it is reused; mutant(dropped sync): another sync follows
}

template <bool RANDOM> struct TeamPhases {
  static constexpr bool SMALL = AHEAD && ONE_AGENT;
  static constexpr int UNROLLED_VIEWS = SMALL ? 2 : 1;

  const Batch& batch;
  const Team team;
  Workspace& work;
  const int e, until;    // environment, and end of the steps whose actions are prefetched
  // Arrays are separate local variables, referenced from here. As members they would keep the whole struct out of registers.
  Env& env;
  EachGroup<OwnRows>& own;
  OnChipState& start;    // initial state of the next episode, valid if `drawn`
  const Observations& observations;
  Clock clock;
  bool drawn = false;
  u32 has_final;         // whether final observations are requested
  u32 sector_lanes;        // lane mask of `sector_any`
  int first, t;          // first step of the launch, and the current step
  size_type row;
  bool ended, over, recorded, to_final;
  int length;            // length of the episode, if it is over
  float sum;             // return so far of the thread's last agent. It is recorded if there is one agent

  DEVICE TeamPhases(const Batch& batch, const Team team, Workspace& work, const int e, const int until, Env& env,
                    EachGroup<OwnRows>& own, OnChipState& start, const Observations& observations, const Clock& clock)
      : batch(batch), team(team), work(work), e(e), until(until), env(env), own(own), start(start),
        observations(observations), clock(clock) {}

  DEVICE bool autoreset() const { return RANDOM || batch.mask == nullptr || batch.mask[e]; }

  DEVICE void load(const int from) {
    first = from;
    if (HAS_METRICS && team.leader()) env.metrics = batch.metrics[e];
    if constexpr (STATE_ON_CHIP) copy_struct(team, env.state, batch.state[e]);
    if constexpr (CACHE_ON_CHIP) copy_struct(team, on_chip_cache(work.cache, batch.cache[e]), batch.cache[e]);
    each_group([&](auto, auto& mine, auto& on_chip, const auto& rows) INLINED {
      load_returns(team, kept_rows(mine, on_chip), rows, e);
    }, own, work.rows, batch.rows);
    if constexpr (RANDOM && !Observations::SPREAD) if (from == 0) observations.copy_first();
    if constexpr (!RANDOM && FETCHED) {
      // mutant(dropped condition): overwritten before it is read; mutant(swap <): a launch takes a step at least
      if (from < until) fetch((size_type)from * batch.num_envs + e);
    }
    has_final = first_group(batch.rows).final_obs != nullptr;
    hold(has_final);
    sector_lanes = team.sector_lanes();  // mutant(dropped statement): no lanes on a CPU
    // mutant(swap ==, constant): no lanes on a CPU
    if constexpr (TEAM == 1) hold(sector_lanes);  // otherwise each step recomputes the mask just before its stores
  }

  DEVICE void fetch(const size_type of_row) {
    each_group([&](auto, auto& on_chip, const auto& rows) INLINED { fetch_actions_of(team, on_chip, rows, of_row); }, work.rows,
               batch.rows);
  }

  DEVICE void fetch_actions(const int of_step) {
    t = of_step;
    team.in_step(batch.num_envs);
    if constexpr (RANDOM && Observations::SPREAD) if (t == e % until) observations.copy_first();
    const u32 word_of_four = clock.time % 4;
    row = (size_type)t * batch.num_envs + e;
    const Random actions{env.random.seed, env.random.env, 0, clock.time / 4, ACTION};
    if (RANDOM && (t == first || word_of_four == 0)) {  // for all agents in one branch, so that their draws overlap
      each_group([&](auto kind, auto& mine, auto& on_chip) INLINED {
        draw_ahead<decltype(kind)>(team, kept_rows(mine, on_chip), actions);
      }, own, work.rows);
    }
    each_group([&](auto, auto& group, const auto& rows, auto& mine, auto& on_chip) INLINED {
      take_actions<RANDOM>(team, group, rows, on_chip, kept_rows(mine, on_chip), row, actions, word_of_four, batch.num_envs);
    }, env, batch.rows, own, work.rows);
  }

  DEVICE void begin_step() {
    each_group([&](auto, auto& group, const auto& rows, auto& on_chip) INLINED { begin_rows(team, group, rows, on_chip, row); },
               env, batch.rows, work.rows);
    clock.elapsed += 1;
    clock.time += 1;
    env.elapsed = clock.elapsed;
    env.last_step = clock.elapsed >= batch.max_episode_steps;
    env.random.episode = clock.episode - 1; env.random.step = clock.elapsed; env.random.purpose = DYNAMICS;
    team.sync();  // actions and cleared rewards are written before `step` accesses them
  }

  DEVICE void step() {
    ended = team.any(step_once(env));
    over = ended || env.last_step;
    recorded = team.sector_any(over, sector_lanes);
    length = clock.elapsed;
  }

  DEVICE void end_step() {
    sum = 0.0f;
    each_group([&](auto, auto& group, const auto& rows, auto& mine, auto& on_chip) INLINED {
      end_rows(team, group, rows, kept_rows(mine, on_chip), row, e, over, recorded, sum);
    }, env, batch.rows, own, work.rows);
  }

  DEVICE void record() {
    const Metrics counted = HAS_METRICS && over ? total(team, env.metrics) : Metrics{};  // mutant(swap &&): more work, same result
    if (recorded && team.leader()) {
      if constexpr (!ONE_AGENT) store_last(batch.episode_length + row, clock.elapsed);
      if constexpr (HAS_METRICS) batch.episode_metrics[row] = counted;
    }
    if constexpr (AHEAD) {
      if (team.warp_any(over && autoreset() && !drawn)) {  // other lanes repeat their draw, with the same result
        draw_start(env, clock, start.value);
        drawn = true;
      }
    }
    to_final = over && has_final != 0;
  }

  DEVICE View first_view() const { return SMALL || to_final ? FINAL : NEXT; }

  DEVICE void reset() {
    if (!over || !autoreset()) return;
    if constexpr (AHEAD) {
      env.state = start.value;
      drawn = false;
      clock.elapsed = env.elapsed = 0;
      env.metrics = Metrics{};
    } else {
      begin_episode(env, clock);
    }
    clock.episode += 1;
  }

  DEVICE void observe(const View view) {
    if (SMALL && view == FINAL && !to_final) return;  // mutant(swap ==, swap && 1): SMALL is false on a CPU
    observe_into(env, batch, observations, view, row);
    observations.keep(view, row);
    // mutant(dropped sync): a reset in between has a sync
    if (view == FINAL) team.sync();  // final observations are stored before the next ones overwrite them on chip
  }

  DEVICE void commit() {
    observations.commit(row);
    if constexpr (ROWS_ON_CHIP) {
      each_group([&](auto, auto& on_chip, const auto& rows) INLINED { store_rows<RANDOM>(team, on_chip, rows, row); }, work.rows,
                 batch.rows);
    }
    if (ONE_AGENT && recorded && team.leader()) store_record(first_group(batch.rows).episode_return + row * RECORD, sum, length);
    if (team.leader()) {
      batch.terminated[row] = HORIZON_ENDS_TASK ? over : ended;
      batch.truncated[row] = !HORIZON_ENDS_TASK && over && !ended;
    }
    if constexpr (!RANDOM && FETCHED) {
      if (t + 1 < until) fetch(row + batch.num_envs);
    }
  }

  DEVICE void store() {
    team.sync();  // the last step is complete before its state is stored; mutant(dropped sync): another sync follows
    if constexpr (STATE_ON_CHIP) copy_struct(team, batch.state[e], env.state);
    if constexpr (CACHE_ON_CHIP) copy_struct(team, batch.cache[e], on_chip_cache(work.cache, batch.cache[e]));
    each_group([&](auto, auto& mine, auto& on_chip, const auto& rows) INLINED {
      store_returns(team, kept_rows(mine, on_chip), rows, e);
    }, own, work.rows, batch.rows);
    if constexpr (HAS_METRICS) {
      const Metrics counted = total(team, env.metrics);
      if (team.leader()) batch.metrics[e] = counted;
    }
    if (team.leader()) batch.clock[e] = clock;
    team.sync();  // the workspace is read before it is reused; mutant(dropped sync): another sync follows
  }
};

// Take steps [from, until) of one environment, with actions given (T, N, ...) or drawn at random.
template <bool RANDOM>
DEVICE void advance_env(const Batch& batch, const Team team, Workspace& work, const int e, const int from, const int until) {
  const Observations observations(team, batch.rows, work.obs, e, batch.num_envs);
  if constexpr (RANDOM) observations.begin();
  const Clock clock = batch.clock[e];
  MAKE_ENV(clock, on_chip_cache(work.cache, batch.cache[e]));
  EachGroup<OwnRows> own;
  OnChipState start;
  TeamPhases<RANDOM> phases(batch, team, work, e, until, env, own, start, observations, clock);
  take_steps(phases, from, until);
}
