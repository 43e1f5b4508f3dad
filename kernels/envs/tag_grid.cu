// tag_grid.cu -- taggers chase one runner on a square grid of (GRID_LENGTH + 1)^2 cells.
//
// Source: the rules of WarpDrive's TagGridWorld (Lan et al., JMLR 2022); tag_grid.py says what differs.
//
//   state   x, y [cells, 0 to GRID_LENGTH]; taggers are agents [0, RUNNER), the runner is agent RUNNER
//   action  0 = stay, 1 = +x, 2 = -x, 3 = +y, 4 = -y
//   reward  caught: tag_reward to every tagger, -tag_penalty to the runner; else -step_cost, +step_cost;
//           -wall_hit_penalty to whoever runs into a wall
struct Params { float wall_hit_penalty, tag_reward_for_tagger, tag_penalty_for_runner, step_cost_for_tagger; };
struct State { Array<int, NUM_AGENTS> x, y; };
#include "drive/env.cuh"
#include "drive/nearest.cuh"

constexpr int RUNNER = NUM_TAGGERS;
constexpr float SCALE = 1.0f / (float)GRID_LENGTH;

DEVICE void reset(Env& env) {
  for (int i : env.team.each(NUM_AGENTS)) {
    if (START == START_FIXED) {
      env.state.x[i] = env.state.y[i] = i < RUNNER ? GRID_LENGTH / 2 : 0;
    } else {
      const auto word = env.random.bits(i);
      env.state.x[i] = Random::below(word.x, GRID_LENGTH + 1);
      env.state.y[i] = Random::below(word.y, GRID_LENGTH + 1);
    }
  }
}

// Moves agent i; returns whether a wall stopped it.
DEVICE bool move(State& s, int i, int action) {
  const int x = s.x[i] + (action == 1) - (action == 2), y = s.y[i] + (action == 3) - (action == 4);
  s.x[i] = math::clamp(x, 0, GRID_LENGTH);
  s.y[i] = math::clamp(y, 0, GRID_LENGTH);
  return s.x[i] != x || s.y[i] != y;
}

DEVICE bool step(Env& env) {
  State& s = env.state;
  const Params& p = env.params;
  for (int i : env.team.each(NUM_AGENTS)) {
    const bool hit = move(s, i, i < RUNNER ? env.tagger.action(i) : env.runner.action(0));
    if (hit) (i < RUNNER ? env.tagger.reward(i) : env.runner.reward(0)) = -p.wall_hit_penalty;
    env.log.wall_hits += hit;
  }
  env.team.sync();  // everybody has moved
  int tags = 0;
  for (int i : env.team.each(NUM_TAGGERS)) tags += s.x[i] == s.x[RUNNER] && s.y[i] == s.y[RUNNER];
  env.log.tags += tags;
  const bool caught = env.team.any(tags > 0);
  for (int i : env.team.each(NUM_AGENTS)) {
    if (i < RUNNER) env.tagger.reward(i) += caught ? p.tag_reward_for_tagger : -p.step_cost_for_tagger;
    else env.runner.reward(0) += caught ? -p.tag_penalty_for_runner : p.step_cost_for_tagger;
  }
  return caught;
}

// Everything about everybody: all x, all y, all types, which one is me, time.
DEVICE void observe_all(Env& env) {
  const State& s = env.state;
  for (int i : env.team.each(NUM_AGENTS)) {
    auto row = i < RUNNER ? env.tagger.obs(i) : env.runner.obs(0);
    for (int j = 0; j < NUM_AGENTS; ++j) {
      row[j] = (float)s.x[j] * SCALE;
      row[NUM_AGENTS + j] = (float)s.y[j] * SCALE;
      row[2 * NUM_AGENTS + j] = j < RUNNER ? 1.0f : 0.0f;
      row[3 * NUM_AGENTS + j] = j == i ? 1.0f : 0.0f;
    }
    row[4 * NUM_AGENTS] = env.time();
  }
}

// 64 bits hold the squared distances of any grid, and an id; 32 bits those of most, which pays where there are many.
constexpr bool NARROW = NUM_AGENTS > 32 && 2ull * GRID_LENGTH * GRID_LENGTH * NUM_AGENTS + NUM_AGENTS < 0xffffffffull;
typedef Choose<NARROW, u32, u64>::type Distance;

DEVICE Distance squared_distance(const State& s, int i, int j) {
  const Distance dx = (Distance)(i64)(s.x[j] - s.x[i]), dy = (Distance)(i64)(s.y[j] - s.y[i]);  // squares of either sign
  return dx * dx + dy * dy;
}

// Own place, the other's place, own type, time; the runner's other is the nearest tagger, a tagger's is the runner.
DEVICE void observe_opponent(Env& env) {
  const State& s = env.state;
  Distance nearest = ~(Distance)0;  // (squared distance, id): a tie goes to the lower id
  for (int i : env.team.each(NUM_TAGGERS)) {
    const Distance key = squared_distance(s, i, RUNNER) * NUM_TAGGERS + i;
    nearest = key < nearest ? key : nearest;
  }
  const int chaser = (int)(env.team.min(nearest) % NUM_TAGGERS);
  const float time = env.time();
  for (int i : env.team.each(NUM_AGENTS)) {
    const int other = i < RUNNER ? RUNNER : chaser;
    auto row = i < RUNNER ? env.tagger.obs(i) : env.runner.obs(0);
    row[0] = (float)s.x[i] * SCALE;
    row[1] = (float)s.y[i] * SCALE;
    row[2] = (float)s.x[other] * SCALE;
    row[3] = (float)s.y[other] * SCALE;
    row[4] = i < RUNNER ? 1.0f : 0.0f;
    row[5] = time;
  }
}

// Own place and type, then x, y and type of the nearest agents of either kind, feature by feature, time.
DEVICE void observe_nearest(Env& env) {
  constexpr int OTHERS = NUM_OTHER_AGENTS_OBSERVED > 0 ? NUM_OTHER_AGENTS_OBSERVED : 1;
  const State& s = env.state;
  for (int i : env.team.each(NUM_AGENTS)) {
    Nearest<Distance, OTHERS> nearest;
    nearest.clear(~(Distance)0);
    for (int j = 0; j < NUM_AGENTS; ++j) {
      const Distance distance = squared_distance(s, i, j);
      if (j != i && distance < nearest.distance[OTHERS - 1]) nearest.insert_next(distance, j);
    }
    auto row = i < RUNNER ? env.tagger.obs(i) : env.runner.obs(0);
    row[0] = (float)s.x[i] * SCALE;
    row[1] = (float)s.y[i] * SCALE;
    row[2] = i < RUNNER ? 1.0f : 0.0f;
    UNROLL for (int k = 0; k < OTHERS; ++k) {  // there are at least so many others
      const int j = nearest.id[k];
      row[3 + k] = (float)s.x[j] * SCALE;
      row[3 + OTHERS + k] = (float)s.y[j] * SCALE;
      row[3 + 2 * OTHERS + k] = j < RUNNER ? 1.0f : 0.0f;
    }
    row[3 + 3 * OTHERS] = env.time();
  }
}

DEVICE void observe(Env& env) {
  if constexpr (USE_FULL_OBSERVATION) observe_all(env);
  else if constexpr (NUM_OTHER_AGENTS_OBSERVED > 0) observe_nearest(env);
  else observe_opponent(env);
}
