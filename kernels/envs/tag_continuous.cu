// tag_continuous.cu -- Taggers chase runners on a square of side grid_length. Runners that are tagged may leave.
//
// Source: the rules of WarpDrive's TagContinuous (Lan et al., JMLR 2022). tag_continuous.py lists the differences.
//
//   state   x, y [length, 0 to grid_length], speed [length/step, 0 to max_speed * skill], direction [rad, [0, 2 pi)],
//           acceleration [length/step^2], active [1 in the game, 0 out].
//           Taggers are agents [0, NUM_TAGGERS), runners the rest.
//   action  (change of acceleration, turn): 0 = none, 1 .. levels: from the lowest to the highest
//   reward  tag: tag_reward to the nearest tagger, tag_penalty to the runner. Penalties at the edge and per step.
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
#include "drive/neighbors.cuh"
struct Shared {
  Array<int, NUM_TAGGERS> tags;  // runners that each tagger has tagged in this step
  Neighbors<NUM_AGENTS, (OTHERS > 0 ? OTHERS : 1)> near;
  Stage stage;                   // staging buffers of observation rows
};
struct Cache { NeighborCache<NUM_AGENTS> near; };
#include "drive/env.cuh"

DEVICE bool is_tagger(int i) { return i < NUM_TAGGERS; }
DEVICE float top_speed(const Params& p, bool tagger) {
  return p.max_speed * (tagger ? p.skill_level_tagger : p.skill_level_runner);
}

DEVICE void reset(Env& env) {
  State& s = env.state;
  const Random random = START == START_FIXED ? env.fixed_random() : env.random;
  for (int i : env.team.each(NUM_AGENTS)) {
    const auto word = random.bits(i);
    s.x[i] = Random::unit(word.x) * env.params.grid_length;
    s.y[i] = Random::unit(word.y) * env.params.grid_length;
    s.direction[i] = (float)Random::below(word.z, 4) * (0.25f * math::TWO_PI);
    IF_TABLE(start_x, s.x[i] = env.table.start_x[i]);  // initial states from tables
    IF_TABLE(start_y, s.y[i] = env.table.start_y[i]);
    IF_TABLE(start_direction, s.direction[i] = env.table.start_direction[i]);
    s.speed[i] = s.acceleration[i] = 0.0f;
    s.active[i] = 1;
  }
}

// Value of one action: 0 is "none", 1 .. levels are spread evenly from low to high.
DEVICE float level(int action, int levels, float low, float high) {
  if (action == 0) return 0.0f;
  return low + (high - low) * math::Divisor((float)(levels > 1 ? levels - 1 : 1)).of((float)(action - 1));
}

// Move agent i. Returns whether it crossed the edge.
DEVICE bool move(State& s, const Params& p, int i, int accelerate, int turn) {
  const float top = top_speed(p, is_tagger(i));
  const float acceleration =
      s.acceleration[i] + level(accelerate, NUM_ACCELERATION_LEVELS, p.min_acceleration, p.max_acceleration);
  const float direction = math::wrap_turn(s.direction[i] + level(turn, NUM_TURN_LEVELS, p.min_turn, p.max_turn));
  const float speed = math::clamp(s.speed[i] + acceleration, 0.0f, top);
  float sine, cosine;
  math::sincos(direction, &sine, &cosine);
  const float x = s.x[i] + speed * cosine, y = s.y[i] + speed * sine;
  s.x[i] = math::clamp(x, 0.0f, p.grid_length);
  s.y[i] = math::clamp(y, 0.0f, p.grid_length);
  s.speed[i] = speed;
  s.direction[i] = direction;
  s.acceleration[i] = speed <= 0.0f || speed >= top ? 0.0f : acceleration;
  return x < 0.0f || x > p.grid_length || y < 0.0f || y > p.grid_length;
}

DEVICE bool step(Env& env) {
  State& s = env.state;
  const Params& p = env.params;
  for (int i : env.team.each(NUM_TAGGERS)) {
    const bool crossed = move(s, p, i, env.tagger.action(i, 0), env.tagger.action(i, 1));
    env.tagger.reward(i) = p.step_penalty_for_tagger + (crossed ? p.edge_hit_penalty : 0.0f);
    env.metrics.edge_hits += crossed;
    env.shared.tags[i] = 0;
  }
  for (int r : env.team.each(NUM_RUNNERS)) {
    const int i = NUM_TAGGERS + r;
    env.runner.active(r) = s.active[i];
    env.runner.left(r) = 0;
    if (s.active[i]) {
      const bool crossed = move(s, p, i, env.runner.action(r, 0), env.runner.action(r, 1));
      env.runner.reward(r) = p.step_reward_for_runner + (crossed ? p.edge_hit_penalty : 0.0f);
      env.metrics.edge_hits += crossed;
    } else {  // a runner that is out stays in place
      s.speed[i] = s.direction[i] = s.acceleration[i] = 0.0f;
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
      const float dx = s.x[j] - s.x[i], dy = s.y[j] - s.y[i], distance = dx * dx + dy * dy;
      if (distance < nearest) { nearest = distance; tagger = j; }
    }
    if (nearest < radius * radius) {
      env.team.add(env.shared.tags, tagger, 1);
      env.runner.reward(r) += p.tag_penalty_for_runner;
      env.metrics.tags += 1;
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

// Write the observation of agent i: own x, y, speed, cosine and sine of the direction, seven features of each of OTHERS agents,
// feature by feature, time. The k-th of the others is agent(k), or i if there are fewer. If agent i is out, only the types and
// activity of others are not 0. The nearest are all in the game.
constexpr int OBS = 5 + 7 * OTHERS + 1;
template <class Writer, class Agent> DEVICE void see(const Env& env, int i, Writer&& row, Agent agent) {
  const State& s = env.state;
  const Params& p = env.params;
  // Scales. `seeing` is 0 if agent i is out.
  const math::Divisor side(p.grid_length), top(p.max_speed);
  const float seeing = s.active[i] ? 1.0f : 0.0f, per_diagonal = 1.0f / (1.41421356f * p.grid_length);
  const float per_speed = 1.0f / p.max_speed, per_acceleration = 1.0f / (p.max_acceleration - p.min_acceleration);
  constexpr float per_turn = 1.0f / math::TWO_PI;
  const float x = s.x[i], y = s.y[i], speed = s.speed[i], direction = s.direction[i], acceleration = s.acceleration[i];
  float sine, cosine;
  math::sincos(direction, &sine, &cosine);
  const auto own = [&](float value) { return seeing != 0.0f ? value : 0.0f; };
  const auto of = [&](auto feature) { return [=](int k) { return feature(agent(k)); }; };
  // Own entries, seven features of the others, and time.
  row.put(own(side.of(x))).put(own(side.of(y))).put(own(top.of(speed))).put(own(cosine)).put(own(sine))
      .put_each(of([&](int j) { return (s.x[j] - x) * (seeing * per_diagonal); }))
      .put_each(of([&](int j) { return (s.y[j] - y) * (seeing * per_diagonal); }))
      .put_each(of([&](int j) { return (s.speed[j] - speed) * (seeing * per_speed); }))
      .put_each(of([&](int j) { return (s.acceleration[j] - acceleration) * (seeing * per_acceleration); }))
      .put_each(of([&](int j) { return math::shortest_turn(direction, s.direction[j]) * (seeing * per_turn); }))
      .put_each(of([&](int j) { return (j != i) & is_tagger(j) ? 1.0f : 0.0f; }))
      .put_each(of([&](int j) { return (j != i) & (!USE_FULL_OBSERVATION || s.active[j]) ? 1.0f : 0.0f; }))
      .put(own(env.time()));
}

// Observe the OTHERS nearest agents in the game, nearest first, or all other agents by id.
DEVICE void observe(Env& env) {
  const State& s = env.state;
  const Params& p = env.params;
  const auto obs_of = [&](int i) { return is_tagger(i) ? env.tagger.obs(i) : env.runner.obs(i - NUM_TAGGERS); };
  if constexpr (USE_FULL_OBSERVATION || OTHERS == 0) {
    for (int i : env.team.each(NUM_AGENTS)) {
      see(env, i, PlainRow<OTHERS>(obs_of(i)), [&](int k) { return k < i ? k : k + 1; });
    }
  } else {
    auto& near = env.shared.near;
    near.place(env.team, s.x, s.y, s.active, p.grid_length);
    env.team.sync();  // positions are written before the search reads them
    near.each(env, math::max(top_speed(p, true), top_speed(p, false)), [&](const auto& seen) {
      RowWriter<OBS, OTHERS> row(env, seen.mine, obs_of(seen.i));
      if (seen.out) row.put_zeros();
      else see(env, seen.i, row, [&](int k) { return seen.id[k]; });
    });
  }
}
