// my_env.cu -- walkers on a line look for a goal; the episode ends when one of them stands on it.
//
//   state   x [m, -1 to 1] of each walker, goal [m, -1 to 1]
//   action  0 = stay, 1 = a step to the left, 2 = a step to the right
//   reward  minus the distance to the goal [m]
//
// Params: the float parameters of my_env.py, in order. State: its fields, in order. Ints are constants (NUM_WALKERS).
struct Params { float stride, reach; };
struct State { float x[NUM_WALKERS]; float goal; };
#include "drive/env.cuh"

// Each member of the team takes its share of the walkers: `team.each` makes that right for any team size.
DEVICE void reset(Env& env) {
  for (int i : env.team.each(NUM_WALKERS)) env.state.x[i] = 2.0f * env.random.uniform4(i).x - 1.0f;
  if (env.team.leader()) env.state.goal = 2.0f * env.random.uniform4(NUM_WALKERS).x - 1.0f;
}

// Returns whether the task has ended; drive.cuh looks after the time limit, the reset and the statistics.
DEVICE bool step(Env& env) {
  State& s = env.state;
  const Params& p = env.params;
  bool found = false;
  for (int i : env.team.each(NUM_WALKERS)) {
    const int action = env.walker.action(i);
    const float move = (float)((action == 2) - (action == 1)) * p.stride;
    s.x[i] = math::clamp(s.x[i] + move, -1.0f, 1.0f);
    const float distance = math::abs(s.x[i] - s.goal);
    env.walker.reward(i) = -distance;
    found = found || distance < p.reach;
    env.log.moves += action != 0;
  }
  return found;  // each member says what it has seen
}

// A function of the state and the time alone. Walkers see their place, the goal, and the first walker's place; a member
// that reads what another has written needs `env.team.sync()` in between (here drive.cuh has synced already).
DEVICE void observe(Env& env) {
  const State& s = env.state;
  for (int i : env.team.each(NUM_WALKERS)) {
    auto row = env.walker.obs(i);
    row[0] = s.x[i];
    row[1] = s.goal - s.x[i];
    row[2] = s.x[0];
    row[3] = env.time();
  }
}
