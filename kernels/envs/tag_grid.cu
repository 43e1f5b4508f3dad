// tag_grid.cu -- Taggers chase one runner on a square grid of (GRID_LENGTH + 1)^2 cells.
//
// Source: the rules of WarpDrive's TagGridWorld (Lan et al., JMLR 2022). tag_grid.py lists the differences.
//
//   state   x, y [cells, 0 to GRID_LENGTH]. Taggers are agents [0, RUNNER), the runner is agent RUNNER
//   action  0 = stay, 1 = +x, 2 = -x, 3 = +y, 4 = -y
//   reward  caught: tag_reward to every tagger, -tag_penalty to the runner. Otherwise -step_cost, +step_cost.
//           -wall_hit_penalty to agents that run into a wall
struct Params { float wall_hit_penalty, tag_reward_for_tagger, tag_penalty_for_runner, step_cost_for_tagger; };
struct State { Array<int, NUM_AGENTS> x, y; };
#include "drive/env.cuh"
#include "drive/nearest.cuh"

constexpr int RUNNER = NUM_TAGGERS;
constexpr float SCALE = 1.0f / (float)GRID_LENGTH;
constexpr u64 FARTHEST = 2ull * GRID_LENGTH * GRID_LENGTH;  // squared distance of two corners

DEVICE void reset(Env& env) {
  for (int i : env.team.each(NUM_AGENTS)) {
    if (START == START_FIXED) {
      env.state.x[i] = env.state.y[i] = i < RUNNER ? GRID_LENGTH / 2 : 0;
    } else {
      const auto word = env.random.bits(i);
      env.state.x[i] = Random::below(word.x, GRID_LENGTH + 1);
      env.state.y[i] = Random::below(word.y, GRID_LENGTH + 1);
    }
    IF_TABLE(start_x, env.state.x[i] = env.table.start_x[i]);  // initial states from tables
    IF_TABLE(start_y, env.state.y[i] = env.table.start_y[i]);
  }
}

// Move agent i. Returns whether a wall stopped it.
DEVICE bool move(State& s, int i, int action) {
  const int x = s.x[i] + (action == 1) - (action == 2), y = s.y[i] + (action == 3) - (action == 4);
  s.x[i] = math::clamp(x, 0, GRID_LENGTH);
  s.y[i] = math::clamp(y, 0, GRID_LENGTH);
  return s.x[i] != x || s.y[i] != y;
}

DEVICE float& reward_of(Env& env, int i) { return i < RUNNER ? env.tagger.reward(i) : env.runner.reward(0); }
DEVICE Row obs_of(Env& env, int i) { return i < RUNNER ? env.tagger.obs(i) : env.runner.obs(0); }

DEVICE bool step(Env& env) {
  State& s = env.state;
  const Params& p = env.params;
  for (int i : env.team.each(NUM_AGENTS)) {
    const bool hit = move(s, i, i < RUNNER ? env.tagger.action(i) : env.runner.action(0));
    if (hit) reward_of(env, i) = -p.wall_hit_penalty;
    env.metrics.wall_hits += hit;
  }
  env.team.sync();  // everybody has moved
  int tags = 0;
  for (int i : env.team.each(NUM_TAGGERS)) tags += s.x[i] == s.x[RUNNER] && s.y[i] == s.y[RUNNER];
  env.metrics.tags += tags;
  const bool caught = env.team.any(tags > 0);
  for (int i : env.team.each(NUM_AGENTS)) {
    if (i < RUNNER) env.tagger.reward(i) += caught ? p.tag_reward_for_tagger : -p.step_cost_for_tagger;
    else env.runner.reward(0) += caught ? -p.tag_penalty_for_runner : p.step_cost_for_tagger;
  }
  return caught;
}

DEVICE u64 squared_distance(const State& s, int i, int j) {
  const i64 dx = s.x[j] - s.x[i], dy = s.y[j] - s.y[i];
  return (u64)(dx * dx + dy * dy);
}

// Observe all agents: all x, all y, all types, one-hot own id, time.
DEVICE void observe_all(Env& env) {
  const State& s = env.state;
  for (int i : env.team.each(NUM_AGENTS)) {
    auto row = obs_of(env, i);
    for (int j = 0; j < NUM_AGENTS; ++j) {
      row[j] = (float)s.x[j] * SCALE;
      row[NUM_AGENTS + j] = (float)s.y[j] * SCALE;
      row[2 * NUM_AGENTS + j] = j < RUNNER ? 1.0f : 0.0f;
      row[3 * NUM_AGENTS + j] = j == i ? 1.0f : 0.0f;
    }
    row[4 * NUM_AGENTS] = env.time();
  }
}

// Observe own position, an opponent's position, own type, time. The runner's opponent is the nearest tagger, a tagger's the runner.
DEVICE void observe_opponent(Env& env) {
  const State& s = env.state;
  const int chaser = nearest_of<NUM_TAGGERS, FARTHEST>(env.team, [&](int i) { return squared_distance(s, i, RUNNER); });
  const float time = env.time();
  for (int i : env.team.each(NUM_AGENTS)) {
    const int other = i < RUNNER ? RUNNER : chaser;
    auto row = obs_of(env, i);
    row[0] = (float)s.x[i] * SCALE;
    row[1] = (float)s.y[i] * SCALE;
    row[2] = (float)s.x[other] * SCALE;
    row[3] = (float)s.y[other] * SCALE;
    row[4] = i < RUNNER ? 1.0f : 0.0f;
    row[5] = time;
  }
}

// Observe own position and type, then x, y and type of the nearest K agents of either kind, feature by feature, time.
template <int K> DEVICE void observe_nearest(Env& env) {
  const State& s = env.state;
  for (int i : env.team.each(NUM_AGENTS)) {
    Nearest<Whole<FARTHEST>, K> nearest(FARTHEST + 1);
    for (int j = 0; j < NUM_AGENTS; ++j) {
      if (j != i) nearest.offer(squared_distance(s, i, j), j);
    }
    auto row = obs_of(env, i);
    row[0] = (float)s.x[i] * SCALE;
    row[1] = (float)s.y[i] * SCALE;
    row[2] = i < RUNNER ? 1.0f : 0.0f;
    for (int k = 0; k < K; ++k) {  // there are at least K others
      const int j = nearest.id[k];
      row[3 + k] = (float)s.x[j] * SCALE;
      row[3 + K + k] = (float)s.y[j] * SCALE;
      row[3 + 2 * K + k] = j < RUNNER ? 1.0f : 0.0f;
    }
    row[3 + 3 * K] = env.time();
  }
}

DEVICE void observe(Env& env) {
  if constexpr (USE_FULL_OBSERVATION) observe_all(env);
  else if constexpr (NUM_OTHER_AGENTS_OBSERVED > 0) observe_nearest<NUM_OTHER_AGENTS_OBSERVED>(env);
  else observe_opponent(env);
}
