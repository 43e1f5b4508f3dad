// minatar_freeway.cu -- Cross eight lanes of traffic, as in MinAtar's Freeway.
//
//   state   cars of rows 1 to 8, 4 bits each: column, steps until the car moves, and speed [steps that it then waits, LEFT = it
//           moves to the left]. Row of the player, steps until it may move. last_action
//   action  0 = none, 1 = up, 2 = down
//   reward  1 at the top, where the player returns to the bottom and all cars get new speeds
struct Params { float sticky_action_prob; };
struct State { u32 car_x, car_timer, car_speed; int player, rest, last_action; };
#include "drive/env.cuh"
#include "envs/minatar.cuh"

constexpr int CARS = 8, COLUMN = 4, REST = 3;
constexpr u32 LEFT = 8u, SPEEDS = 0x77777777u;  // bit of the direction, bits of all speeds without it
enum Channel { CHICKEN, CAR, SPEED };

// Random speeds of all cars, 1 to 5, in either direction.
DEVICE u32 draw_speeds(const Random& random) {
  u32 speeds = 0;
  for (int half = 0; half < 2; ++half) {
    const Random::Bits words = random.bits(half, 1);
    UNROLL for (int k = 0; k < 4; ++k) {
      const int drawn = Random::below(words.word(k), 10);
      speeds |= (drawn < 5 ? (u32)drawn + 1u : (u32)drawn - 4u | LEFT) << 4 * (4 * half + k);
    }
  }
  return speeds;
}

DEVICE int next_x(int x, bool left) { return left ? (x > 0 ? x - 1 : SIDE - 1) : (x < SIDE - 1 ? x + 1 : 0); }

DEVICE void reset(Env& env) {
  if (!env.team.leader()) return;
  const u32 speeds = draw_speeds(env.random);
  env.state = {0u, speeds & SPEEDS, speeds, SIDE - 1, REST, 0};
}

DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  State& s = env.state;
  const int action = effective_action(env);
  if (action != 0 && s.rest == 0) {
    s.player = action == 1 ? s.player - 1 : math::min(s.player + 1, SIDE - 1);
    s.rest = REST;
  }
  if (s.rest > 0) --s.rest;
  if (s.player == 0) {
    env.player.reward(0) = 1.0f;
    s.player = SIDE - 1;
    s.car_speed = draw_speeds(env.random);
    s.car_timer = s.car_speed & SPEEDS;
  }

  // A car hits the player at its cell before the move and at its cell after it.
  bool hit = false;
  for (int k = 0; k < CARS; ++k) {
    const int before = nibble(s.car_x, k), timer = nibble(s.car_timer, k), speed = nibble(s.car_speed, k);
    const int x = timer == 0 ? next_x(before, speed & LEFT) : before;
    s.car_x = with_nibble(s.car_x, k, x);
    s.car_timer = with_nibble(s.car_timer, k, timer == 0 ? speed & 7 : timer - 1);
    hit |= s.player == k + 1 && (before == COLUMN || x == COLUMN);
  }
  if (hit) s.player = SIDE - 1;
  return false;
}

DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  const State& s = env.state;
  Cells cells(env);
  cells.set(COLUMN, s.player, CHICKEN);
  for (int k = 0; k < CARS; ++k) {
    const int x = nibble(s.car_x, k), speed = nibble(s.car_speed, k);
    cells.set(x, k + 1, CAR);
    cells.set(next_x(x, !(speed & LEFT)), k + 1, SPEED + (speed & 7) - 1);
  }
}
