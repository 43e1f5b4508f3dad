// acrobot.cu -- Two links with a torque at the joint between them (Sutton 1996), as Gymnasium's Acrobot-v1.
//
//   state   theta1 [rad, -PI to PI, 0 = hanging], theta2 [rad, -PI to PI, relative to the first link],
//           dtheta1, dtheta2 [rad/s]
//   action  0 = -torque, 1 = none, 2 = +torque [N m]
//   reward  -1 for every step, 0 for the terminating one, in which the free end is above `goal_height`
struct Params {
  float gravity, length_1, mass_1, mass_2, center_1, center_2, inertia, torque, tau, max_speed_1, max_speed_2;
  float goal_height, start_range;
};
struct State { float theta1, theta2, dtheta1, dtheta2; };
#include "drive/env.cuh"

DEVICE void reset(Env& env) {
  const float low = -env.params.start_range, span = 2.0f * env.params.start_range;
  const auto u = env.random.uniform4(0);
  if (env.team.leader()) env.state = {low + span * u.x, low + span * u.y, low + span * u.z, low + span * u.w};
}

// Return the time derivative of a state. Source: Sutton & Barto (2018), section 11.3. BOOK_OR_NIPS_NIPS: Sutton (1996), which lacks
// the centripetal term of the first link.
DEVICE State derivative(const Params& p, const State& s, const float torque) {
  float sine2, cosine2;
  math::sincos(s.theta2, &sine2, &cosine2);
  const float lever = p.mass_2 * p.length_1 * p.center_2;
  const float d1 = p.mass_1 * p.center_1 * p.center_1 +
                   p.mass_2 * (p.length_1 * p.length_1 + p.center_2 * p.center_2) + 2.0f * lever * cosine2 +
                   2.0f * p.inertia;
  const float d2 = p.mass_2 * p.center_2 * p.center_2 + lever * cosine2 + p.inertia;
  // cos(x - pi/2) = sin(x)
  const float phi2 = p.mass_2 * p.center_2 * p.gravity * math::sin(s.theta1 + s.theta2);
  const float phi1 = -lever * s.dtheta2 * (s.dtheta2 + 2.0f * s.dtheta1) * sine2 +
                     (p.mass_1 * p.center_1 + p.mass_2 * p.length_1) * p.gravity * math::sin(s.theta1) + phi2;
  const float centripetal = DYNAMICS_OF == DYNAMICS_OF_BOOK ? lever * s.dtheta1 * s.dtheta1 * sine2 : 0.0f;
  const float ratio = d2 / d1;
  const float ddtheta2 = (torque + ratio * phi1 - centripetal - phi2) /
                         (p.mass_2 * p.center_2 * p.center_2 + p.inertia - d2 * ratio);
  return {s.dtheta1, s.dtheta2, -(d2 * ddtheta2 + phi1) / d1, ddtheta2};
}

DEVICE State moved(const State& s, const State& rate, const float time) {
  return {s.theta1 + time * rate.theta1, s.theta2 + time * rate.theta2, s.dtheta1 + time * rate.dtheta1,
          s.dtheta2 + time * rate.dtheta2};
}

DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  const Params& p = env.params;
  State& s = env.state;
  const float torque = (float)(env.arm.action(0) - 1) * p.torque;
  // One fourth-order Runge-Kutta step over tau.
  const State k1 = derivative(p, s, torque);
  const State k2 = derivative(p, moved(s, k1, 0.5f * p.tau), torque);
  const State k3 = derivative(p, moved(s, k2, 0.5f * p.tau), torque);
  const State k4 = derivative(p, moved(s, k3, p.tau), torque);
  const float sixth = p.tau / 6.0f;
  s.theta1 = math::wrap_angle(s.theta1 + sixth * (k1.theta1 + 2.0f * (k2.theta1 + k3.theta1) + k4.theta1));
  s.theta2 = math::wrap_angle(s.theta2 + sixth * (k1.theta2 + 2.0f * (k2.theta2 + k3.theta2) + k4.theta2));
  s.dtheta1 = math::clamp(s.dtheta1 + sixth * (k1.dtheta1 + 2.0f * (k2.dtheta1 + k3.dtheta1) + k4.dtheta1),
                          -p.max_speed_1, p.max_speed_1);
  s.dtheta2 = math::clamp(s.dtheta2 + sixth * (k1.dtheta2 + 2.0f * (k2.dtheta2 + k3.dtheta2) + k4.dtheta2),
                          -p.max_speed_2, p.max_speed_2);
  const bool up = -math::cos(s.theta1) - math::cos(s.theta2 + s.theta1) > p.goal_height;
  env.arm.reward(0) = up ? 0.0f : -1.0f;
  return up;
}

DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  const State& s = env.state;
  float sine1, cosine1, sine2, cosine2;
  math::sincos(s.theta1, &sine1, &cosine1);
  math::sincos(s.theta2, &sine2, &cosine2);
  auto row = env.arm.obs(0);
  row[0] = cosine1; row[1] = sine1; row[2] = cosine2; row[3] = sine2;
  row[4] = s.dtheta1; row[5] = s.dtheta2;
}
