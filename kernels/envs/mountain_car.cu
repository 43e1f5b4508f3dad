// mountain_car.cu -- An underpowered car in a valley (Moore 1990), as Gymnasium's MountainCar-v0.
//
//   state   position [-1.2 to 0.6 along the x axis], velocity [per step]
//   action  0 = push left, 1 = none, 2 = push right
//   reward  -1 for every step
struct Params {
  float gravity, min_position, max_position, max_speed, goal_position, goal_velocity, start_low, start_high, force;
};
struct State { float position, velocity; };
#include "drive/env.cuh"

DEVICE void reset(Env& env) {
  const Params& p = env.params;
  if (env.team.leader()) env.state = {p.start_low + (p.start_high - p.start_low) * env.random.uniform4(0).x, 0.0f};
}

DEVICE bool step(Env& env) {
  const Params& p = env.params;
  State& s = env.state;
  bool at_goal = false;
  if (env.team.leader()) {
    const float push = (float)(env.car.action(0) - 1) * p.force;
    s.velocity = math::clamp(s.velocity + push - p.gravity * math::cos(3.0f * s.position), -p.max_speed, p.max_speed);
    s.position = math::clamp(s.position + s.velocity, p.min_position, p.max_position);
    s.velocity = (s.position == p.min_position) & (s.velocity < 0.0f) ? 0.0f : s.velocity;  // the wall stops it
    env.car.reward(0) = -1.0f;
    at_goal = s.position >= p.goal_position && s.velocity >= p.goal_velocity;
  }
  return at_goal;
}

DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  auto row = env.car.obs(0);
  row[0] = env.state.position;
  row[1] = env.state.velocity;
}
