// simple_spread.cu -- Agents cover landmarks and avoid collisions, as MPE2's simple_spread (Lowe et al. 2017).
//
//   state   x, y [length], x_dot, y_dot [length/s] of agents, landmark_x, landmark_y [length] of as many landmarks
//   action  0 = none, 1 = left, 2 = right, 3 = down, 4 = up, or the strength of each, [0 to 1, clipped]
//   reward  minus the sum of each landmark's distance to the nearest agent, equal for all, weighted by 1 - local_ratio,
//           minus the number of agents that this one touches, weighted by local_ratio
struct Params { float local_ratio; };
struct State { Array<float, NUM_AGENTS> x, y, x_dot, y_dot, landmark_x, landmark_y; };
struct Shared { Array<float, NUM_AGENTS> x, y, nearest; };  // positions after the step, distances from landmarks to nearest agents
#include "drive/env.cuh"
#include "drive/rows.cuh"

constexpr float TOUCHING = 0.3f, TAU = 0.1f, KEPT = 0.75f, ACCELERATION = 5.0f;  // length, s, velocity kept in a step, length/s^2
constexpr float STIFFNESS = 100.0f, MARGIN = 1e-3f, COVERED = 0.1f;              // of contacts [1/s^2, length], length

DEVICE void reset(Env& env) {
  State& s = env.state;
  for (int i : env.team.each(NUM_AGENTS)) {
    const auto u = env.random.uniform4(i);
    s.x[i] = 2.0f * u.x - 1.0f;
    s.y[i] = 2.0f * u.y - 1.0f;
    s.landmark_x[i] = 2.0f * u.z - 1.0f;
    s.landmark_y[i] = 2.0f * u.w - 1.0f;
    s.x_dot[i] = s.y_dot[i] = 0.0f;
  }
}

// Push of agent i along one axis, -1 to 1.
DEVICE float push(const Env& env, int i, int back, int forth) {
  const auto part = [&](int k) { return math::clamp((float)env.agent.action(i, k), 0.0f, 1.0f); };
  if constexpr (CONTINUOUS_ACTIONS) return part(forth) - part(back);
  else return (float)((env.agent.action(i) == forth) - (env.agent.action(i) == back));
}

DEVICE float distance(float dx, float dy) { return math::sqrt(dx * dx + dy * dy); }

DEVICE bool step(Env& env) {
  State& s = env.state;
  Shared& next = env.shared;
  const float local = env.params.local_ratio;
  // Move with the old velocity. Then accelerate by the action and by soft contacts at the old positions.
  for (int i : env.team.each(NUM_AGENTS)) {
    const float x = s.x[i], y = s.y[i], x_dot = s.x_dot[i], y_dot = s.y_dot[i];
    float force_x = ACCELERATION * push(env, i, 1, 2), force_y = ACCELERATION * push(env, i, 3, 4);
    for (int j = 0; j < NUM_AGENTS; ++j) {
      const float dx = x - s.x[j], dy = y - s.y[j], apart = distance(dx, dy);
      const float contact = STIFFNESS * MARGIN * math::softplus((TOUCHING - apart) * (1.0f / MARGIN));
      const float per_length = apart > 0.0f ? contact / apart : 0.0f;  // 0 also for i itself
      force_x += per_length * dx;
      force_y += per_length * dy;
    }
    next.x[i] = x + TAU * x_dot;
    next.y[i] = y + TAU * y_dot;
    s.x_dot[i] = KEPT * x_dot + TAU * force_x;
    s.y_dot[i] = KEPT * y_dot + TAU * force_y;
  }
  env.team.sync();  // all next positions are written before they are read, and old ones are read before they are overwritten
  for (int k : env.team.each(NUM_AGENTS)) {
    float nearest = math::infinity();
    for (int i = 0; i < NUM_AGENTS; ++i) {
      nearest = math::min(nearest, distance(next.x[i] - s.landmark_x[k], next.y[i] - s.landmark_y[k]));
    }
    next.nearest[k] = nearest;
    env.metrics.covered += nearest < COVERED;
  }
  env.team.sync();  // all distances are written before they are read
  float sum = 0.0f;
  for (int k = 0; k < NUM_AGENTS; ++k) sum += next.nearest[k];
  for (int i : env.team.each(NUM_AGENTS)) {
    int hits = 0;
    for (int j = 0; j < NUM_AGENTS; ++j) {
      const bool hit = j != i && distance(next.x[i] - next.x[j], next.y[i] - next.y[j]) < TOUCHING;
      hits += hit;
      env.metrics.collisions += hit && j < i;  // each pair once
    }
    env.agent.reward(i) = (local - 1.0f) * sum - local * (float)hits;
    s.x[i] = next.x[i];
    s.y[i] = next.y[i];
  }
  return false;
}

// Own velocity and position, vectors to all landmarks and all other agents, and zeros for their silent communication channels.
DEVICE void observe(Env& env) {
  const State& s = env.state;
  for (int i : env.team.each(NUM_AGENTS)) {
    const float x = s.x[i], y = s.y[i];
    PlainRow<2 * NUM_AGENTS> row(env.agent.obs(i));
    row.put(s.x_dot[i]).put(s.y_dot[i]).put(x).put(y);
    for (int k = 0; k < NUM_AGENTS; ++k) row.put(s.landmark_x[k] - x).put(s.landmark_y[k] - y);
    for (int k = 0; k < NUM_AGENTS - 1; ++k) row.put(s.x[k + (k >= i)] - x).put(s.y[k + (k >= i)] - y);
    for (int k = 2; k < 2 * NUM_AGENTS; ++k) row.put(0.0f);
    // A critic sees place and velocity of all agents, the own first, and places of landmarks.
    const auto critic = env.agent.critic_obs(i);
    if (!critic) continue;
    for (int k = 0; k < NUM_AGENTS; ++k) {
      const int j = i + k < NUM_AGENTS ? i + k : i + k - NUM_AGENTS;
      critic[4 * k] = s.x[j];
      critic[4 * k + 1] = s.y[j];
      critic[4 * k + 2] = s.x_dot[j];
      critic[4 * k + 3] = s.y_dot[j];
      critic[4 * NUM_AGENTS + 2 * k] = s.landmark_x[k];
      critic[4 * NUM_AGENTS + 2 * k + 1] = s.landmark_y[k];
    }
  }
}
