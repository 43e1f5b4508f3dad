// cartpole.cu -- Cart-pole of Barto, Sutton & Anderson (1983), as Gymnasium's CartPole-v1.
//
//   state   x [m], x_dot [m/s], theta [rad, 0 = upright], theta_dot [rad/s]
//   action  0 = push left, 1 = push right, with force_mag [N]
//   reward  1 for every step, including the terminating one
struct Params { float gravity, mass_cart, mass_pole, half_length, force_mag, tau, x_limit, theta_limit, start_range; };
struct State { float x, x_dot, theta, theta_dot; };
#include "drive/env.cuh"

DEVICE void reset(Env& env) {
  const float low = -env.params.start_range, span = 2.0f * env.params.start_range;
  const auto u = env.random.uniform4(0);
  if (env.team.leader()) env.state = {low + span * u.x, low + span * u.y, low + span * u.z, low + span * u.w};
}

// Explicit Euler with the *old* velocities, as in the source. The semi-implicit order is a different task.
DEVICE bool step(Env& env) {
  const Params& p = env.params;
  State& s = env.state;
  bool fallen = false;
  if (env.team.leader()) {
    const float inverse_mass = 1.0f / (p.mass_cart + p.mass_pole);
    const float pole_moment = p.mass_pole * p.half_length;
    const float force = (float)(2 * env.cart.action(0) - 1) * p.force_mag;  // without a branch: a CPU mispredicts half of random actions
    float sine, cosine;
    math::sincos(s.theta, &sine, &cosine);
    const float push = (force + pole_moment * s.theta_dot * s.theta_dot * sine) * inverse_mass;
    const float theta_acc = (p.gravity * sine - cosine * push) /
                            (p.half_length * (4.0f / 3.0f - p.mass_pole * cosine * cosine * inverse_mass));
    const float x_acc = push - pole_moment * theta_acc * cosine * inverse_mass;
    s.x += p.tau * s.x_dot;
    s.x_dot += p.tau * x_acc;
    s.theta += p.tau * s.theta_dot;
    s.theta_dot += p.tau * theta_acc;
    env.cart.reward(0) = 1.0f;
    fallen = (math::abs(s.x) > p.x_limit) | (math::abs(s.theta) > p.theta_limit);
  }
  return fallen;
}

DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  const State& s = env.state;
  auto row = env.cart.obs(0);
  row[0] = s.x;
  if constexpr (POSITION_ONLY) { row[1] = s.theta; }
  else { row[1] = s.x_dot; row[2] = s.theta; row[3] = s.theta_dot; }
}
