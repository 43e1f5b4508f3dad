// minatar_asterix.cu -- Collect gold and avoid enemies, as in MinAtar's Asterix.
//
//   state   column and row of the player. Entities of rows 1 to 8 in 4 bits each: their columns, and the flags THING, RIGHT and
//           GOLD. Steps until something appears, until everything moves and until the next level, which sets both intervals.
//           last_action
//   action  0 = none, 1 = left, 2 = up, 3 = right, 4 = down
//   reward  1 for gold. Touching an enemy terminates the episode
struct Params { float sticky_action_prob; };
struct State {
  int player_x, player_y;
  u32 thing_x, thing;
  int spawn_timer, move_timer, level, ramp_timer, last_action;
};
#include "drive/env.cuh"
#include "envs/minatar.cuh"

constexpr int ROWS = 8, LEVELS = 10, LEVEL_STEPS = 100;
constexpr u32 THING = 1u, RIGHT = 2u, GOLD = 4u;
enum Channel { PLAYER, ENEMY, TRAIL, TREASURE };

DEVICE int spawn_interval(int level) { return LEVELS - level; }
DEVICE int move_interval(int level) { return math::max(5 - level / 2, 1); }

DEVICE void reset(Env& env) {
  if (!env.team.leader()) return;
  env.state = {5, 5, 0u, 0u, spawn_interval(0), move_interval(0), 0, LEVEL_STEPS, 0};
}

DEVICE void remove(State& s, int row) {
  s.thing_x = with_nibble(s.thing_x, row, 0);
  s.thing = with_nibble(s.thing, row, 0);
}

// Place something at either end of a random row without things, if there is one.
DEVICE void spawn(State& s, const Random::Bits words) {
  const u32 free = ~s.thing & 0x11111111u;  // bits THING of the free rows
  const bool right = words.x >> 31 != 0, gold = Random::below(words.y, 3) == 0;
  for (int row = 0, rank = Random::below(words.z, math::popcount(free)); row < ROWS; ++row) {
    if (nibble(free, row) != 0 && rank-- == 0) {
      s.thing_x = with_nibble(s.thing_x, row, right ? 0 : SIDE - 1);
      s.thing = with_nibble(s.thing, row, (int)(THING | (right ? RIGHT : 0u) | (gold ? GOLD : 0u)));
    }
  }
}

// Take gold at the player's cell. Returns whether an enemy is there.
DEVICE bool meet(Env& env) {
  State& s = env.state;
  const int row = s.player_y - 1, thing = nibble(s.thing, row);
  if (thing == 0 || nibble(s.thing_x, row) != s.player_x) return false;
  if (!(thing & GOLD)) return true;
  env.player.reward(0) += 1.0f;
  remove(s, row);
  return false;
}

DEVICE void move_things(State& s) {
  for (int row = 0; row < ROWS; ++row) {
    const int x = nibble(s.thing_x, row), thing = nibble(s.thing, row);
    if (thing == 0) continue;
    if (x == (thing & RIGHT ? SIDE - 1 : 0)) remove(s, row);
    else s.thing_x = with_nibble(s.thing_x, row, thing & RIGHT ? x + 1 : x - 1);
  }
}

DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  State& s = env.state;
  const int action = effective_action(env);
  if (s.spawn_timer == 0) {
    spawn(s, env.random.bits(0, 1));
    s.spawn_timer = spawn_interval(s.level);
  }
  --s.spawn_timer;

  s.player_x = math::clamp(s.player_x + (action == 3) - (action == 1), 0, SIDE - 1);
  s.player_y = math::clamp(s.player_y + (action == 4) - (action == 2), 1, ROWS);
  bool killed = meet(env);
  if (s.move_timer == 0) {
    move_things(s);
    killed |= meet(env);
    s.move_timer = move_interval(s.level);
  }
  --s.move_timer;

  if (DIFFICULTY_RAMPING == DIFFICULTY_RAMPING_ON && s.level < LEVELS - 1 && --s.ramp_timer < -1) {
    s.ramp_timer = LEVEL_STEPS;
    ++s.level;
  }
  return killed;
}

DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  const State& s = env.state;
  Cells cells(env);
  cells.set(s.player_x, s.player_y, PLAYER);
  for (int row = 0; row < ROWS; ++row) {
    const int x = nibble(s.thing_x, row), thing = nibble(s.thing, row);
    if (thing == 0) continue;
    cells.set(x, row + 1, thing & GOLD ? TREASURE : ENEMY);
    const int behind = thing & RIGHT ? x - 1 : x + 1;
    if (behind >= 0 && behind < SIDE) cells.set(behind, row + 1, TRAIL);
  }
}
