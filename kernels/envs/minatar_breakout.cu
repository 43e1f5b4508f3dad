// minatar_breakout.cu -- Break three rows of bricks with a ball that a paddle keeps in play, as in MinAtar's Breakout.
//
//   state   bricks: bit (y - 1) * SIDE + x is set for a brick in column x of row y, 1 to 3. paddle: its column. Columns and rows of
//           ball and trail. move_x, move_y: -1 or 1 cells per step. striking: whether the ball touched a brick in the last step
//           (MinAtar's `strike`). last_action
//   action  0 = none, 1 = left, 2 = right
//   reward  1 for each brick
struct Params { float sticky_action_prob; };
struct State { u32 bricks; int paddle, ball_x, ball_y, move_x, move_y, trail_x, trail_y, striking, last_action; };
#include "drive/env.cuh"
#include "envs/minatar.cuh"

constexpr u32 FULL = (1u << 30) - 1u;
enum Channel { PADDLE, BALL, TRAIL, BRICK };

DEVICE void reset(Env& env) {
  if (!env.team.leader()) return;
  const bool right = env.random.bits(0).x >> 31 != 0;
  const int x = right ? 9 : 0;
  env.state = {FULL, 4, x, 3, right ? -1 : 1, 1, x, 3, 0, 0};
}

DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  State& s = env.state;
  const int action = effective_action(env);
  s.paddle = math::clamp(s.paddle + (action == 2) - (action == 1), 0, SIDE - 1);
  s.trail_x = s.ball_x;
  s.trail_y = s.ball_y;

  // step() may be called after termination, so the row is clamped.
  int x = s.ball_x + s.move_x, y = math::min(s.ball_y + s.move_y, SIDE - 1);
  if (x < 0 || x >= SIDE) {
    s.move_x = -s.move_x;
    x = s.ball_x;
  }
  if (y < 0) {
    s.move_y = 1;
    y = 0;
  }

  const u32 brick = y >= 1 && y <= 3 ? s.bricks & 1u << ((y - 1) * SIDE + x) : 0u;
  const bool breaks = brick != 0 && !s.striking;
  s.striking = brick != 0;
  bool back = breaks, terminated = false;
  if (breaks) {
    s.bricks &= ~brick;
    env.player.reward(0) = 1.0f;
  } else if (y == SIDE - 1) {
    if (s.bricks == 0) s.bricks = FULL;
    const bool corner = s.paddle != s.ball_x && s.paddle == x;
    if (corner) s.move_x = -s.move_x;
    back = corner || s.paddle == s.ball_x;
    terminated = !back;
  }
  if (back) s.move_y = -s.move_y;
  s.ball_x = x;
  s.ball_y = back ? s.trail_y : y;
  return terminated;
}

DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  const State& s = env.state;
  Cells cells(env);
  cells.set(s.paddle, SIDE - 1, PADDLE);
  cells.set(s.ball_x, s.ball_y, BALL);
  cells.set(s.trail_x, s.trail_y, TRAIL);
  for (int row = 0; row < 3; ++row) cells.set_row(row + 1, BRICK, s.bricks >> row * SIDE);
}
