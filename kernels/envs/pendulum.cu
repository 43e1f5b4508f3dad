// pendulum.cu -- Swing a pendulum up and hold it there, as Gymnasium's Pendulum-v1.
//
//   state   theta [rad, -PI to PI, 0 = upright], theta_dot [rad/s]
//   action  torque [N m], clipped to max_torque
//   reward  -(theta^2 + 0.1 theta_dot^2 + 0.001 torque^2), of the state before the step
struct Params { float gravity, mass, length, tau, max_speed, max_torque, start_speed; };
struct State { float theta, theta_dot; };
#include "drive/env.cuh"

DEVICE void reset(Env& env) {
  const auto u = env.random.uniform4(0);
  const float speed = env.params.start_speed;
  if (env.team.leader()) env.state = {math::PI * (2.0f * u.x - 1.0f), speed * (2.0f * u.y - 1.0f)};
}

DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  const Params& p = env.params;
  State& s = env.state;
  const float torque = math::clamp(env.pole.action(0), -p.max_torque, p.max_torque);
  env.pole.reward(0) = -(s.theta * s.theta + 0.1f * (s.theta_dot * s.theta_dot) + 0.001f * (torque * torque));
  const float acceleration =
      1.5f * p.gravity / p.length * math::sin(s.theta) + 3.0f / (p.mass * (p.length * p.length)) * torque;
  s.theta_dot = math::clamp(s.theta_dot + p.tau * acceleration, -p.max_speed, p.max_speed);
  s.theta = math::wrap_angle(s.theta + p.tau * s.theta_dot);
  return false;
}

DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  float sine, cosine;
  math::sincos(env.state.theta, &sine, &cosine);
  auto row = env.pole.obs(0);
  row[0] = cosine;
  row[1] = sine;
  if constexpr (!POSITION_ONLY) row[2] = env.state.theta_dot;
}
