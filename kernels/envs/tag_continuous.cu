// tag_continuous.cu -- taggers chase runners on a square of side grid_length; runners that are tagged may leave.
//
// Source: the rules of WarpDrive's TagContinuous (Lan et al., JMLR 2022); tag_continuous.py says what differs.
//
//   state   x, y [length, 0 to grid_length], speed [length/step, 0 to max_speed * skill], direction [rad, [0, 2 pi)],
//           acceleration [length/step^2], active [1 in the game, 0 out];
//           reach [length]: a hint for the next search of neighbours, no value of it changes an observation.
//           Taggers are agents [0, NUM_TAGGERS), runners the rest.
//   action  (change of acceleration, turn): 0 = none, 1 .. levels: from the lowest to the highest
//   reward  tag: tag_reward to the nearest tagger, tag_penalty to the runner; penalties at the edge and per step;
//           end_of_game_reward to runners still in the game at the last step
struct Params {
  float grid_length, max_speed, skill_level_tagger, skill_level_runner;
  float min_acceleration, max_acceleration, min_turn, max_turn, tagging_distance;
  float edge_hit_penalty, tag_reward_for_tagger, step_penalty_for_tagger;
  float tag_penalty_for_runner, step_reward_for_runner, end_of_game_reward_for_runner;
};
struct State {
  float x[NUM_AGENTS], y[NUM_AGENTS], speed[NUM_AGENTS], direction[NUM_AGENTS], acceleration[NUM_AGENTS];
  int active[NUM_AGENTS];
  float reach[NUM_AGENTS];
};
constexpr int SCANS = (NUM_AGENTS + 63) / 64;                        // scans of at most 64 agents that see everybody
constexpr int SCAN = ((NUM_AGENTS + SCANS - 1) / SCANS + 3) / 4 * 4;  // agents of one
constexpr int WIDE_SCAN = 16;                                         // of a scan that has no limit yet
constexpr int PLACES = (SCAN * SCANS + WIDE_SCAN - 1) / WIDE_SCAN * WIDE_SCAN;
struct Shared {
  int tags[NUM_TAGGERS];              // runners that each tagger has tagged in this step
  alignas(16) float x[PLACES];        // for the search of neighbours: where agents are; NOWHERE if out or there is none
  alignas(16) float y[PLACES];
};
#include "drive/env.cuh"
#include "drive/nearest.cuh"

constexpr float SQRT_2 = 1.41421356f;
constexpr float FAR = 1e30f;      // a squared distance that no pair of agents in the game has
constexpr float NOWHERE = 1e18f;  // a place that is further than FAR from everybody, squared

DEVICE bool is_tagger(int i) { return i < NUM_TAGGERS; }

DEVICE float top_speed(const Params& p, int i) {
  return p.max_speed * (is_tagger(i) ? p.skill_level_tagger : p.skill_level_runner);
}

DEVICE void reset(Env& env) {
  State& s = env.state;
  const Random random = START == START_FIXED ? env.fixed_random() : env.random;
  for (int i : env.team.each(NUM_AGENTS)) {
    const auto word = random.bits(i);
    s.x[i] = Random::unit(word.x) * env.params.grid_length;
    s.y[i] = Random::unit(word.y) * env.params.grid_length;
    s.direction[i] = (float)Random::below(word.z, 4) * (0.25f * math::TWO_PI);
    s.speed[i] = 0.0f;
    s.acceleration[i] = 0.0f;
    s.active[i] = 1;
    s.reach[i] = 0.0f;
  }
}

// The value of one action: 0 is "none", 1 .. levels spread evenly from low to high.
DEVICE float level(int action, int levels, float low, float high) {
  if (action == 0) return 0.0f;
  return low + (high - low) * ((float)(action - 1) / (float)(levels > 1 ? levels - 1 : 1));
}

// Moves agent i, which is in the game; returns whether it crossed the edge.
DEVICE bool move(State& s, const Params& p, int i, int accelerate, int turn) {
  const float limit = top_speed(p, i);
  float acceleration = s.acceleration[i] + level(accelerate, NUM_ACCELERATION_LEVELS, p.min_acceleration, p.max_acceleration);
  const float direction = math::wrap_turn(s.direction[i] + level(turn, NUM_TURN_LEVELS, p.min_turn, p.max_turn));
  const float speed = math::clamp(s.speed[i] + acceleration, 0.0f, limit);
  if (speed <= 0.0f || speed >= limit) acceleration = 0.0f;
  float sine, cosine;
  math::sincos(direction, &sine, &cosine);
  const float x = s.x[i] + speed * cosine, y = s.y[i] + speed * sine;
  s.x[i] = math::clamp(x, 0.0f, p.grid_length);
  s.y[i] = math::clamp(y, 0.0f, p.grid_length);
  s.speed[i] = speed;
  s.direction[i] = direction;
  s.acceleration[i] = acceleration;
  return x < 0.0f || x > p.grid_length || y < 0.0f || y > p.grid_length;
}

// An agent that is out stays where it is and forgets speed and direction.
DEVICE void rest(State& s, int i) {
  s.speed[i] = 0.0f;
  s.direction[i] = 0.0f;
  s.acceleration[i] = 0.0f;
}

DEVICE float squared_distance(const State& s, int i, int j) {
  const float dx = s.x[j] - s.x[i], dy = s.y[j] - s.y[i];
  return dx * dx + dy * dy;
}

DEVICE bool step(Env& env) {
  State& s = env.state;
  const Params& p = env.params;
  for (int i : env.team.each(NUM_TAGGERS)) {
    const bool crossed = move(s, p, i, env.tagger.action(i, 0), env.tagger.action(i, 1));
    env.tagger.reward(i) = p.step_penalty_for_tagger + (crossed ? p.edge_hit_penalty : 0.0f);
    env.log.edge_hits += crossed;
    env.shared.tags[i] = 0;
  }
  for (int r : env.team.each(NUM_RUNNERS)) {
    const int i = NUM_TAGGERS + r;
    env.runner.active(r) = s.active[i];
    env.runner.left(r) = 0;
    if (s.active[i]) {
      const bool crossed = move(s, p, i, env.runner.action(r, 0), env.runner.action(r, 1));
      env.runner.reward(r) = p.step_reward_for_runner + (crossed ? p.edge_hit_penalty : 0.0f);
      env.log.edge_hits += crossed;
    } else {
      rest(s, i);
    }
  }
  env.team.sync();  // everybody has moved, all tags are 0

  const float radius = p.tagging_distance * p.grid_length;
  int remaining = 0;
  for (int r : env.team.each(NUM_RUNNERS)) {
    const int i = NUM_TAGGERS + r;
    if (!s.active[i]) continue;
    float nearest = FAR;
    int tagger = 0;
    for (int j = 0; j < NUM_TAGGERS; ++j) {  // a tie goes to the lower id
      const float distance = squared_distance(s, i, j);
      if (distance < nearest) { nearest = distance; tagger = j; }
    }
    const bool tagged = nearest < radius * radius;
    if (tagged) {
      env.team.add(env.shared.tags[tagger], 1);
      env.runner.reward(r) += p.tag_penalty_for_runner;
      env.log.tags += 1;
      if (RUNNER_EXITS_GAME_AFTER_TAGGED) { s.active[i] = 0; env.runner.left(r) = 1; }
    } else if (env.last_step) {
      env.runner.reward(r) += p.end_of_game_reward_for_runner;
    }
    remaining += s.active[i];
  }
  env.team.sync();  // all tags are counted
  for (int i : env.team.each(NUM_TAGGERS)) env.tagger.reward(i) += p.tag_reward_for_tagger * (float)env.shared.tags[i];
  return env.team.sum(remaining) == 0;
}

// ---- observation ---------------------------------------------------------------------------------------------------
// Own x, y, speed, cosine and sine of the direction; seven features of each of OTHERS agents, feature by feature; time.
constexpr int OWN = 5, FEATURES = 7, OBS = OWN + FEATURES * OTHERS + 1;

// From one direction to another, both in [0, 2 pi): in (-pi, pi). The float PI is a little more than pi, so a difference
// of exactly half a turn in floats is more than half a turn, either way round.
DEVICE float shortest_turn(float from, float to) {
  const float turn = to - from;
  return turn >= math::PI ? turn - math::TWO_PI : turn <= -math::PI ? turn + math::TWO_PI : turn;
}

// What the differences to another agent are multiplied by; an observer that is out sees neither motion nor place.
struct Scales { float place, speed, acceleration, turn; };
DEVICE Scales scales(const Params& p, bool in_game) {
  const float seeing = in_game ? 1.0f : 0.0f;
  return {seeing / (SQRT_2 * p.grid_length), seeing / p.max_speed, seeing / (p.max_acceleration - p.min_acceleration),
          seeing / math::TWO_PI};
}

// Writes what i sees of j at position k of [0, OTHERS).
template <class Row> DEVICE void see(const State& s, const Scales& scale, Row& row, int k, int i, int j) {
  row[OWN + k] = (s.x[j] - s.x[i]) * scale.place;
  row[OWN + OTHERS + k] = (s.y[j] - s.y[i]) * scale.place;
  row[OWN + 2 * OTHERS + k] = (s.speed[j] - s.speed[i]) * scale.speed;
  row[OWN + 3 * OTHERS + k] = (s.acceleration[j] - s.acceleration[i]) * scale.acceleration;
  row[OWN + 4 * OTHERS + k] = shortest_turn(s.direction[i], s.direction[j]) * scale.turn;
  row[OWN + 5 * OTHERS + k] = is_tagger(j) ? 1.0f : 0.0f;
  row[OWN + 6 * OTHERS + k] = s.active[j] ? 1.0f : 0.0f;
}

template <class Row> DEVICE void see_nothing(Row& row, int k) {
  for (int f = 0; f < FEATURES; ++f) row[OWN + f * OTHERS + k] = 0.0f;
}

template <class Row> DEVICE void see_self(const Env& env, Row& row, int i) {
  const State& s = env.state;
  const Params& p = env.params;
  const float seeing = s.active[i] ? 1.0f : 0.0f;
  float sine, cosine;
  math::sincos(s.direction[i], &sine, &cosine);
  row[0] = seeing * (s.x[i] / p.grid_length);
  row[1] = seeing * (s.y[i] / p.grid_length);
  row[2] = seeing * (s.speed[i] / p.max_speed);
  row[3] = seeing * cosine;
  row[4] = seeing * sine;
  row[OBS - 1] = seeing * env.time();
}

// Puts the agents of [base, base + COUNT), COUNT <= 64, that are nearer than `limit` among the nearest: first a bit for each
// one, then insertions, so that the lanes of a warp insert together.
template <int COUNT>
DEVICE void scan(const Shared& at, int i, float x, float y, int base, float limit, Nearest<float, OTHERS>& nearest) {
  const float bound = math::min(limit, nearest.furthest());
  u64 near = 0;
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int b = 0; b < COUNT; ++b) {
    const float dx = at.x[base + b] - x, dy = at.y[base + b] - y;
    near |= (u64)(dx * dx + dy * dy < bound) << b;
  }
  if (i >= base && i < base + COUNT) near &= ~(1ull << (i - base));
  for (; near != 0; near &= near - 1) {
    const int j = base + lowest_bit(near);
    const float dx = at.x[j] - x, dy = at.y[j] - y;
    nearest.insert(dx * dx + dy * dy, j);
  }
}

// Finds the nearest agents in the game, exactly, as long as OTHERS of them are nearer than `reach`; else looks again,
// everywhere, in scans that are small, so that the bound follows. `nearest` holds nobody when it begins.
DEVICE void search(const Shared& at, int i, float reach, Nearest<float, OTHERS>& nearest) {
  const float x = at.x[i], y = at.y[i];
  for (int base = 0; reach > 0.0f && base < NUM_AGENTS; base += SCAN) {
    scan<SCAN>(at, i, x, y, base, reach * reach, nearest);
  }
  if (nearest.full()) return;
  nearest.clear(FAR);
  for (int base = 0; base < NUM_AGENTS; base += WIDE_SCAN) scan<WIDE_SCAN>(at, i, x, y, base, FAR, nearest);
}

// The OTHERS nearest agents in the game, ascending; unused places are 0, and so is everything for an agent that is out.
DEVICE void observe_nearest(Env& env) {
  State& s = env.state;
  Shared& at = env.shared;
  for (int j : env.team.each(PLACES)) {
    const bool here = j < NUM_AGENTS && s.active[j];
    at.x[j] = here ? s.x[j] : NOWHERE;
    at.y[j] = here ? s.y[j] : NOWHERE;
  }
  env.team.sync();
  const Scales scale = scales(env.params, true);
  // In one step both agents move by at most the greatest top speed; the little more covers rounding.
  const float drift = 2.001f * math::max(top_speed(env.params, 0), top_speed(env.params, NUM_TAGGERS));
  for (int i : env.team.each(NUM_AGENTS)) {
    auto row = is_tagger(i) ? env.tagger.obs(i) : env.runner.obs(i - NUM_TAGGERS);
    see_self(env, row, i);
    Nearest<float, OTHERS> nearest;
    nearest.clear(FAR);
    if (s.active[i]) search(at, i, s.reach[i], nearest);
    s.reach[i] = nearest.full() ? math::sqrt(nearest.furthest()) + drift : 0.0f;
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int k = 0; k < OTHERS; ++k) {
      if (nearest.id[k] >= 0) see(s, scale, row, k, i, nearest.id[k]);
      else see_nothing(row, k);
    }
  }
}

DEVICE void observe_all(Env& env) {
  State& s = env.state;
  for (int i : env.team.each(NUM_AGENTS)) {
    auto row = is_tagger(i) ? env.tagger.obs(i) : env.runner.obs(i - NUM_TAGGERS);
    see_self(env, row, i);
    const Scales scale = scales(env.params, s.active[i]);
    for (int k = 0; k < OTHERS; ++k) see(s, scale, row, k, i, k < i ? k : k + 1);
    s.reach[i] = 0.0f;
  }
}

DEVICE void observe(Env& env) {
  if constexpr (USE_FULL_OBSERVATION) observe_all(env);
  else observe_nearest(env);
}
