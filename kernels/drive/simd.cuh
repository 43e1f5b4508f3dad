// simd.cuh -- Steps of LANES environments of one agent at once on a CPU, so that the compiler can use vector registers.
//
// The phases are those of phases.cuh, and tests compare the two bit for bit. Here each phase is a loop over lanes, one environment
// each. The lanes' data are interleaved as a structure of arrays: word w of lane l is at [w][l].
#pragma once

constexpr int LANES = 16;
// ALL_LANES is for interleaved data: the compiler knows the number of lanes. Lanes beyond `count` repeat the state of the first
// one, so that the invariants of an environment's loops hold for them too. FOR_LANES is for the arrays of the batch.
#define ALL_LANES for (int l = 0; l < LANES; ++l)
#define FOR_LANES for (int l = 0; l < count; ++l)

template <class T> struct SimdWords {
  u32 word[sizeof(T) / 4][LANES];  // mutant(swap /): more room, never read

  DEVICE T get(int l) const {
    T value;
    for (size_type w = 0; w < sizeof(T) / 4; ++w) __builtin_memcpy((char*)&value + 4 * w, &word[w][l], 4);
    return value;
  }
  DEVICE void put(int l, const T& value) {
    for (size_type w = 0; w < sizeof(T) / 4; ++w) __builtin_memcpy(&word[w][l], (const char*)&value + 4 * w, 4);
  }
};

typedef FirstGroup Agent;  // the only group
struct LaneActions { Agent::Action of[Agent::HEADS]; };
struct LaneObs { obs_t of[Agent::OBS]; };

// Masks, agents that leave, critic observations, agents' numbers, scratch memory and large states are left to phases.cuh.
// mutant(swap <=, swap ==): speed only
constexpr bool SIDE_BY_SIDE = !Agent::MASKED && !Agent::LEAVES && Agent::CRITIC == 0 && !Agent::AGENT_IDS && !HAS_SHARED && !HAS_CACHE && STATE_ON_CHIP && sizeof(State) <= 128;

// Whether observations are interleaved before they are stored as rows. For rows of 3 or 2^k entries, compilers vectorize direct
// stores well. For other rows they would fall back to scalar code, which is best only for long rows.
// mutant(swap -, swap != 1): speed only. mutant(swap ==, constant 4): only 3 bfloat16 observations differ, which no test has
constexpr bool WORD_BY_WORD = Agent::OBS != 3 && Agent::OBS <= 64 && (Agent::OBS & (Agent::OBS - 1)) != 0 && sizeof(LaneObs) % 4 == 0;

struct Together {
  SimdWords<State> state;
  SimdWords<Metrics> metrics;
  SimdWords<LaneObs> obs;  // WORD_BY_WORD
  SimdWords<LaneActions> action;
  SimdWords<Random::Bits> drawn[Agent::HEADS];  // words for four steps
  float reward[LANES], returns[LANES];
  u32 episode[LANES], time[LANES];
  int elapsed[LANES];
  int ended[LANES], over[LANES];  // 4 bytes like the rest: mixed sizes shorten the vectors of a loop
};

// Draw this step's actions. All lanes draw words as soon as one of them needs new ones. The others get the words that they had.
DEVICE void draw_actions_together(Together& lanes, const u64 seed, const u32 first_env, const bool first_step) {
  bool draw = first_step;
  ALL_LANES draw |= lanes.time[l] % 4 == 0;
  for (int head = 0; head < Agent::HEADS; ++head) {
    if (draw) {
      ALL_LANES lanes.drawn[head].put(l, Random{seed, first_env + l, 0, lanes.time[l] / 4, ACTION}.bits(0, head));
    }
    ALL_LANES {
      const Agent::Action action = Agent::sample(lanes.drawn[head].word[lanes.time[l] % 4][l], head);
      __builtin_memcpy(&lanes.action.word[head][l], &action, 4);
    }
  }
}

// The phases of step.cuh for environments [first, first + count), count <= LANES.
template <bool RANDOM> struct SimdPhases {
  static constexpr int UNROLLED_VIEWS = 1;

  const Batch& batch;            // a copy that no store can alias
  const GroupRows<Agent>& rows;  // of the only group
  const int first, count;
  const u64 seed;
  Together& lanes;
  Shared& scratch;
  size_type row;                 // row of the first environment in this step
  int any_over;
  bool first_step;               // first step of this launch

  DEVICE SimdPhases(const Batch& batch, const int first, const int count, Together& lanes, Shared& scratch)
      : batch(batch), rows(first_group(batch.rows)), first(first), count(count), seed(*batch.seed), lanes(lanes),
        scratch(scratch) {}

  // Lane l's environment as its functions see it.
  DEVICE Env env_of(const int l, State& state, const Metrics& metrics, obs_t* obs, float* reward,
                    const Agent::Action* action) const {
    Env env{{}, Team{0}, state, scratch, CACHE_FROM(batch.cache[first]) batch.params, TABLE_FROM(batch.table)
            Random{seed, (u32)(batch.first_env + first + l), lanes.episode[l], 0u, RESET}, lanes.elapsed[l],
            batch.max_episode_steps, math::Divisor((float)batch.max_episode_steps, batch.inverse_horizon), false, metrics};
    first_group(env).obs_row = obs; first_group(env).reward_row = reward; first_group(env).action_row = action;
    return env;
  }

  DEVICE void load(const int from) {
    ALL_LANES {
      const int e = l < count ? first + l : first;
      lanes.state.put(l, batch.state[e]);
      lanes.metrics.put(l, HAS_METRICS ? batch.metrics[e] : Metrics{});
      lanes.returns[l] = rows.returns[e];
      lanes.episode[l] = batch.clock[e].episode;
      lanes.elapsed[l] = batch.clock[e].elapsed;
      lanes.time[l] = batch.clock[e].time;
    }
    if constexpr (RANDOM) if (from == 0) {
      memcpy(rows.obs + ((i64)first - batch.num_envs) * Agent::OBS, rows.current_obs + (i64)first * Agent::OBS,
             sizeof(LaneObs) * count);
    }
    first_step = true;
  }

  DEVICE void fetch_actions(const int t) {
    row = (size_type)t * batch.num_envs + first;
    if constexpr (RANDOM) {
      draw_actions_together(lanes, seed, (u32)(batch.first_env + first), first_step);
      first_step = false;
    } else {
      const LaneActions* given = (const LaneActions*)rows.action + row;
      ALL_LANES lanes.action.put(l, given[l < count ? l : 0]);
    }
  }

  DEVICE void begin_step() {}  // fused into the loop of `step`, like `end_step`: one pass over the lanes instead of three

  DEVICE void step() {
    ALL_LANES {
      State state = lanes.state.get(l);
      float reward = 0.0f;
      const LaneActions action = lanes.action.get(l);
      lanes.elapsed[l] += 1;
      lanes.time[l] += 1;
      Env env = env_of(l, state, lanes.metrics.get(l), nullptr, &reward, action.of);
      env.last_step = lanes.elapsed[l] >= batch.max_episode_steps;
      env.random.episode = lanes.episode[l] - 1; env.random.step = lanes.elapsed[l]; env.random.purpose = DYNAMICS;
      const bool ended = ::step(env);
      lanes.ended[l] = ended;
      lanes.over[l] = ended | env.last_step;
      lanes.state.put(l, state);
      lanes.metrics.put(l, env.metrics);
      lanes.reward[l] = reward;
      lanes.returns[l] += reward;
    }
  }

  DEVICE void end_step() {}

  DEVICE void record() {
    any_over = 0;  // episodes are recorded in `reset`: one loop has fewer mispredicted branches than two
    FOR_LANES any_over |= lanes.over[l];
  }

  DEVICE View first_view() const { return any_over && rows.final_obs != nullptr ? FINAL : NEXT; }

  DEVICE void reset() {
    if (any_over) {
      // Record episodes that are over, and begin the next ones.
      FOR_LANES {
        if (!lanes.over[l]) continue;
        store_record(rows.episode_return + (row + l) * RECORD, lanes.returns[l], lanes.elapsed[l]);
        lanes.returns[l] = 0.0f;
        if constexpr (HAS_METRICS) batch.episode_metrics[row + l] = lanes.metrics.get(l);
        if (!(RANDOM || batch.mask == nullptr || batch.mask[first + l])) continue;
        State state = lanes.state.get(l);
        lanes.elapsed[l] = 0;
        lanes.metrics.put(l, Metrics{});
        Env env = env_of(l, state, Metrics{}, nullptr, nullptr, nullptr);
        ::reset(env);
        lanes.episode[l] += 1;
        lanes.state.put(l, state);
      }
    }
    // Lanes without an environment repeat the first one.
    for (int l = count; l < LANES; ++l) {
      lanes.state.put(l, lanes.state.get(0));
      lanes.episode[l] = lanes.episode[0];
      lanes.elapsed[l] = lanes.elapsed[0];
    }
  }

  DEVICE void observe(const View view) {
    if (view == FINAL) {
      // Final observations, only of environments whose episode is over.
      FOR_LANES {
        if (!lanes.over[l]) continue;
        State state = lanes.state.get(l);
        Env env = env_of(l, state, Metrics{}, rows.final_obs + (row + l) * Agent::OBS, nullptr, nullptr);
        ::observe(env);
        lanes.state.put(l, state);
      }
      return;
    }
    LaneObs* const seen = (LaneObs*)rows.obs + row;
    // Observations of all environments.
    FOR_LANES {
      State state = lanes.state.get(l);
      LaneObs obs;
      Env env = env_of(l, state, Metrics{}, obs.of, nullptr, nullptr);
      ::observe(env);
      lanes.state.put(l, state);
      if constexpr (WORD_BY_WORD) lanes.obs.put(l, obs);
      else seen[l] = obs;
    }
    if constexpr (WORD_BY_WORD) FOR_LANES seen[l] = lanes.obs.get(l);
  }

  DEVICE void commit() {
    if constexpr (RANDOM) {
      LaneActions* const taken = (LaneActions*)rows.action + row;
      FOR_LANES taken[l] = lanes.action.get(l);
    }
    FOR_LANES rows.reward[row + l] = lanes.reward[l];
    FOR_LANES batch.terminated[row + l] = HORIZON_ENDS_TASK ? lanes.over[l] : lanes.ended[l];
    FOR_LANES batch.truncated[row + l] = HORIZON_ENDS_TASK ? 0 : lanes.over[l] & (lanes.ended[l] ^ 1);
  }

  DEVICE void store() {
    FOR_LANES {
      const int e = first + l;
      batch.state[e] = lanes.state.get(l);
      if constexpr (HAS_METRICS) batch.metrics[e] = lanes.metrics.get(l);
      rows.returns[e] = lanes.returns[l];
      batch.clock[e] = Clock{lanes.episode[l], lanes.elapsed[l], lanes.time[l]};
    }
  }
};
#undef FOR_LANES
#undef ALL_LANES

// Take steps [from, until) of environments [first, first + count), with actions given (T, N, ...) or drawn at random.
template <bool RANDOM>
DEVICE void advance_together(const Batch& call, const int first, const int count, const int from, const int until) {
  const Batch batch = call;
  Together lanes;
  Shared scratch;
  SimdPhases<RANDOM> phases(batch, first, count, lanes, scratch);
  take_steps(phases, from, until);
}
