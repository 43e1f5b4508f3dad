// minatar_space_invaders.cu -- Shoot aliens that shoot back and approach, as in MinAtar's Space Invaders.
//
//   state   rows: one word for each row. For column x, bit x is an alien, bit 10 + x a bullet of the cannon, and bit 20 + x a bullet
//           of an alien. cannon: its column. direction of the aliens: -1 = left, 1 = right. interval: longest wait between two of
//           their moves [steps]. Timers [steps]. last_action
//   action  0 = none, 1 = left, 2 = right, 3 = fire
//   reward  1 for each alien
struct Params { float sticky_action_prob; };
struct State { Array<u32, 10> rows; int cannon, direction, interval, move_timer, enemy_shot_timer, shot_timer, last_action; };
#include "drive/env.cuh"
#include "envs/minatar.cuh"

constexpr u32 BOARD = (1u << SIDE) - 1u, WAVE = 0xFCu;  // all columns, and those of new aliens
constexpr int FRIENDLY = SIDE, ENEMY = 2 * SIDE;  // first bits of the bullets
constexpr int COOLDOWN = 5, ENEMY_COOLDOWN = 10, SLOWEST = 12, FASTEST = 6;
enum Channel { CANNON, ALIEN, ALIEN_LEFT, ALIEN_RIGHT, FRIENDLY_BULLET, ENEMY_BULLET };

// Return the columns that have an alien.
DEVICE u32 alien_columns(const State& s) {
  u32 columns = 0u;
  UNROLL for (int y = 0; y < SIDE; ++y) columns |= s.rows[y];
  return columns & BOARD;
}

// Move the cannon's bullets up a row, and the aliens' down.
DEVICE void move_bullets(State& s) {
  u32 above = 0u;
  UNROLL for (int y = 0; y < SIDE; ++y) {
    const u32 row = s.rows[y], below = y + 1 < SIDE ? (u32)s.rows[y + 1] : 0u;
    s.rows[y] = (row & BOARD) | (below & BOARD << FRIENDLY) | (above & BOARD << ENEMY);
    above = row;
  }
}

// Move the aliens sideways, or down if one is at the edge. Returns whether one touches the cannon or leaves the lowest row. An
// alien that leaves the lowest row continues in the highest row, as in MinAtar.
DEVICE bool move_aliens(State& s) {
  int count = 0;
  UNROLL for (int y = 0; y < SIDE; ++y) count += math::popcount(s.rows[y] & BOARD);
  s.move_timer = math::min(count, s.interval);
  const bool left = s.direction < 0, turn = (alien_columns(s) & (left ? 1u : 1u << (SIDE - 1))) != 0;
  const u32 lowest = s.rows[SIDE - 1] & BOARD;
  u32 above = lowest;
  UNROLL for (int y = 0; y < SIDE; ++y) {
    const u32 row = s.rows[y], aliens = row & BOARD;
    s.rows[y] = (row & ~BOARD) | (turn ? above : left ? aliens >> 1 : aliens << 1);
    above = aliens;
  }
  if (turn) s.direction = -s.direction;
  return (turn && lowest != 0) || (s.rows[SIDE - 1] >> s.cannon & 1u) != 0;
}

// The lowest alien of the column nearest to the cannon fires. If two columns are equally near, it is the left one.
DEVICE void fire_back(State& s) {
  const u32 columns = alien_columns(s);
  u32 column = 0u, below = 0u;  // bit of the column, and whether one of its aliens is in a lower row
  for (int distance = SIDE - 1; distance >= 0; --distance) {
    const u32 right = columns & 1u << (s.cannon + distance), left = columns & (1u << s.cannon) >> distance;
    column = left ? left : right ? right : column;
  }
  UNROLL for (int y = SIDE - 1; y >= 0; --y) {
    const u32 row = s.rows[y], alien = row & column;
    s.rows[y] = row | (below ? 0u : alien << ENEMY);
    below |= alien;
  }
}

// Remove aliens and the bullets that hit them. Returns their number.
DEVICE int remove_hit(State& s) {
  int count = 0;
  UNROLL for (int y = 0; y < SIDE; ++y) {
    const u32 row = s.rows[y], hit = row & row >> FRIENDLY & BOARD;
    count += math::popcount(hit);
    s.rows[y] = row & ~(hit | hit << FRIENDLY);
  }
  return count;
}

DEVICE void reset(Env& env) {
  if (!env.team.leader()) return;
  env.state = {{}, 5, -1, SLOWEST, SLOWEST, ENEMY_COOLDOWN, 0, 0};
  UNROLL for (int y = 0; y < 4; ++y) env.state.rows[y] = WAVE;
}

DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  State& s = env.state;
  const int action = effective_action(env);
  // The player moves and fires.
  s.cannon = math::clamp(s.cannon + (action == 2) - (action == 1), 0, SIDE - 1);
  if (action == 3 && s.shot_timer == 0) {
    s.rows[SIDE - 1] = s.rows[SIDE - 1] | 1u << (FRIENDLY + s.cannon);
    s.shot_timer = COOLDOWN;
  }
  // Bullets fly, and aliens move and fire.
  move_bullets(s);
  bool terminated = (s.rows[SIDE - 1] & (1u << s.cannon | 1u << (ENEMY + s.cannon))) != 0;
  if (s.move_timer == 0) terminated |= move_aliens(s);
  if (s.enemy_shot_timer == 0) {
    fire_back(s);
    s.enemy_shot_timer = ENEMY_COOLDOWN;
  }
  // Rewards, and the next wave.
  env.player.reward(0) = (float)remove_hit(s);
  if (alien_columns(s) == 0) {
    UNROLL for (int y = 0; y < 4; ++y) s.rows[y] = s.rows[y] | WAVE;
    env.metrics.waves += 1;
    if (DIFFICULTY_RAMPING == DIFFICULTY_RAMPING_ON && s.interval > FASTEST) s.interval -= 1;
  }
  s.move_timer -= 1;
  s.enemy_shot_timer -= 1;
  s.shot_timer = math::max(s.shot_timer - 1, 0);
  return terminated;
}

DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  const State& s = env.state;
  Cells cells(env);
  cells.set(s.cannon, SIDE - 1, CANNON);
  UNROLL for (int y = 0; y < SIDE; ++y) {
    cells.set_row(y, ALIEN, s.rows[y]);
    cells.set_row(y, s.direction < 0 ? ALIEN_LEFT : ALIEN_RIGHT, s.rows[y]);
    cells.set_row(y, FRIENDLY_BULLET, s.rows[y] >> FRIENDLY);
    cells.set_row(y, ENEMY_BULLET, s.rows[y] >> ENEMY);
  }
}
