// tag_continuous.cu -- taggers chase runners on a square of side grid_length; runners that are tagged may leave.
//
// Source: the rules of WarpDrive's TagContinuous (Lan et al., JMLR 2022); tag_continuous.py says what differs.
//
//   state   x, y [length, 0 to grid_length], speed [length/step, 0 to max_speed * skill], direction [rad, [0, 2 pi)],
//           acceleration [length/step^2], active [1 in the game, 0 out].
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
  Array<float, NUM_AGENTS> x, y, speed, direction, acceleration;
  Array<int, NUM_AGENTS> active;
};
#include "drive/neighbours.cuh"
#include "drive/rows.cuh"
struct Shared {
  Array<int, NUM_TAGGERS> tags;  // runners that each tagger has tagged in this step
  Neighbours<NUM_AGENTS, (OTHERS > 0 ? OTHERS : 1)> near;
  Stage stage;
};
struct Cache { Hints<NUM_AGENTS> near; };
#include "drive/env.cuh"

constexpr float SQRT_2 = 1.41421356f;

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
  }
}

// The value of one action: 0 is "none", 1 .. levels spread evenly from low to high.
DEVICE float level(int action, int levels, float low, float high) {
  if (action == 0) return 0.0f;
  return low + (high - low) * math::Divisor((float)(levels > 1 ? levels - 1 : 1)).of((float)(action - 1));
}

// One that is out stays where it is and forgets speed and direction: without a branch where a CPU moves many at once.
constexpr bool ONE_BY_ONE = TEAM > 1 || NUM_RUNNERS < 16;

// Moves agent i if it is `here`; returns whether it crossed the edge.
DEVICE bool move(State& s, const Params& p, int i, bool here, float limit, int accelerate, int turn) {
  if (ONE_BY_ONE && !here) {
    s.speed[i] = s.direction[i] = s.acceleration[i] = 0.0f;
    return false;
  }
  float acceleration = s.acceleration[i] + level(accelerate, NUM_ACCELERATION_LEVELS, p.min_acceleration, p.max_acceleration);
  const float direction = math::wrap_turn(s.direction[i] + level(turn, NUM_TURN_LEVELS, p.min_turn, p.max_turn));
  const float speed = math::clamp(s.speed[i] + acceleration, 0.0f, limit);
  acceleration = (speed <= 0.0f) | (speed >= limit) ? 0.0f : acceleration;
  float sine, cosine;
  math::sincos(direction, &sine, &cosine);
  const float x = s.x[i] + speed * cosine, y = s.y[i] + speed * sine;
  s.x[i] = here ? math::clamp(x, 0.0f, p.grid_length) : s.x[i];
  s.y[i] = here ? math::clamp(y, 0.0f, p.grid_length) : s.y[i];
  s.speed[i] = here ? speed : 0.0f;
  s.direction[i] = here ? direction : 0.0f;
  s.acceleration[i] = here ? acceleration : 0.0f;
  return here & ((x < 0.0f) | (x > p.grid_length) | (y < 0.0f) | (y > p.grid_length));
}

DEVICE float squared_distance(const State& s, int i, int j) {
  const float dx = s.x[j] - s.x[i], dy = s.y[j] - s.y[i];
  return dx * dx + dy * dy;
}

DEVICE bool step(Env& env) {
  State& s = env.state;
  const Params p = env.params;  // a copy that no store can reach
  const float tagger_limit = top_speed(p, 0), runner_limit = top_speed(p, NUM_TAGGERS);
  for (int i : env.team.each(NUM_TAGGERS)) {
    const bool crossed = move(s, p, i, true, tagger_limit, env.tagger.action(i, 0), env.tagger.action(i, 1));
    env.tagger.reward(i) = p.step_penalty_for_tagger + (crossed ? p.edge_hit_penalty : 0.0f);
    env.log.edge_hits += crossed;
    env.shared.tags[i] = 0;
  }
  for (int r : env.team.each(NUM_RUNNERS)) {
    env.runner.active(r) = s.active[NUM_TAGGERS + r];
    env.runner.left(r) = 0;
  }
  int edge_hits = 0;
  for (int r : env.team.each(NUM_RUNNERS)) {
    const int i = NUM_TAGGERS + r;
    const bool here = s.active[i] != 0;
    const bool crossed = move(s, p, i, here, runner_limit, env.runner.action(r, 0), env.runner.action(r, 1));
    env.runner.reward(r) = here ? p.step_reward_for_runner + (crossed ? p.edge_hit_penalty : 0.0f) : 0.0f;
    edge_hits += crossed;
  }
  env.log.edge_hits += edge_hits;
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
      env.team.add(env.shared.tags, tagger, 1);
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

// What an agent's own numbers are divided by, and what the differences to another agent are multiplied by.
struct Scales {
  math::Divisor own_place, own_speed;
  float place, speed, acceleration, turn;
};
DEVICE Scales scales(const Params& p) {
  return {math::Divisor(p.grid_length), math::Divisor(p.max_speed), 1.0f / (SQRT_2 * p.grid_length), 1.0f / p.max_speed,
          1.0f / (p.max_acceleration - p.min_acceleration), 1.0f / math::TWO_PI};
}

DEVICE Row obs_of(const Env& env, int i) { return is_tagger(i) ? env.tagger.obs(i) : env.runner.obs(i - NUM_TAGGERS); }

// Writes what i sees, if it is `mine`: of itself; of agent(k) for k of [0, OTHERS), feature by feature; of time. agent(k) is
// i where nobody is seen. An agent that is out sees of itself, of time and of motion nothing.
template <class Agent> DEVICE void see(const Env& env, const Scales& scale, int i, bool mine, Agent agent) {
  const State& s = env.state;
  RowWriter<OBS, !USE_FULL_OBSERVATION> row(env.team, env.shared.stage, obs_of(env, i), mine);
  const bool active = s.active[i] != 0;
  const float seeing = active ? 1.0f : 0.0f, x = s.x[i], y = s.y[i], speed = s.speed[i];
  const float acceleration = s.acceleration[i], direction = s.direction[i];
  float sine, cosine;
  math::sincos(direction, &sine, &cosine);
  const auto own = [&](float value) { return active ? value : 0.0f; };  // never -0, as in see_nothing
  row.put<0>(own(scale.own_place.of(x)));
  row.put<1>(own(scale.own_place.of(y)));
  row.put<2>(own(scale.own_speed.of(speed)));
  row.put<3>(own(cosine));
  row.put<4>(own(sine));
  const auto of = [&](auto feature) { return [=](int k) { return feature(agent(k)); }; };
  row.put_each<OWN, OTHERS>(of([&](int j) { return (s.x[j] - x) * (seeing * scale.place); }));
  row.put_each<OWN + OTHERS, OTHERS>(of([&](int j) { return (s.y[j] - y) * (seeing * scale.place); }));
  row.put_each<OWN + 2 * OTHERS, OTHERS>(of([&](int j) { return (s.speed[j] - speed) * (seeing * scale.speed); }));
  row.put_each<OWN + 3 * OTHERS, OTHERS>(
      of([&](int j) { return (s.acceleration[j] - acceleration) * (seeing * scale.acceleration); }));
  row.put_each<OWN + 4 * OTHERS, OTHERS>(
      of([&](int j) { return shortest_turn(direction, s.direction[j]) * (seeing * scale.turn); }));
  row.put_each<OWN + 5 * OTHERS, OTHERS>(of([&](int j) { return (j != i) & is_tagger(j) ? 1.0f : 0.0f; }));
  // Among the nearest are only those in the game.
  row.put_each<OWN + 6 * OTHERS, OTHERS>(
      of([&](int j) { return (j != i) & (!USE_FULL_OBSERVATION || s.active[j] != 0) ? 1.0f : 0.0f; }));
  row.put<OBS - 1>(own(env.time()));
}

DEVICE void see_nothing(const Env& env, int i, bool mine) {
  RowWriter<OBS, true>(env.team, env.shared.stage, obs_of(env, i), mine).put_each<0, OBS>([](int) { return 0.0f; });
}

// The OTHERS nearest agents in the game, ascending; unused places are 0, and so is everything for an agent that is out.
DEVICE void observe_nearest(Env& env) {
  const State& s = env.state;
  auto& near = env.shared.near;
  near.place(env.team, s.x, s.y, s.active, env.params.grid_length);
  env.team.sync();
  const Scales scale = scales(env.params);
  // In one step both agents move by at most the greatest top speed; the little more covers rounding.
  const float drift = 2.001f * math::max(top_speed(env.params, 0), top_speed(env.params, NUM_TAGGERS));
  near.each(env.team, env.cache.near, drift, [&](const auto& found, bool mine) {
    const bool sees = mine && s.active[found.i] != 0;
    if (ROWS_TOGETHER ? env.team.warp_any(sees) : sees) see(env, scale, found.i, mine, [&](int k) { return found.id[k]; });
    else see_nothing(env, found.i, mine);
  });
}

// Everybody else, by id.
DEVICE void observe_all(Env& env) {
  const Scales scale = scales(env.params);
  for (int n : env.team.all(NUM_AGENTS)) {
    const bool mine = n < NUM_AGENTS;
    const int i = mine ? n : 0;
    see(env, scale, i, mine, [&](int k) { return k < i ? k : k + 1; });
  }
}

DEVICE void observe(Env& env) {
  if constexpr (USE_FULL_OBSERVATION || OTHERS == 0) observe_all(env);
  else observe_nearest(env);
}
