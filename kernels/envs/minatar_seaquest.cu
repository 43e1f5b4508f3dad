// minatar_seaquest.cu -- rescue divers, shoot fish and submarines, and surface for air, as MinAtar's Seaquest.
//
//   state   lists of enemies, divers and the player's bullets: how many, and a word for each (Swimmer), oldest first; enemy bullets
//           [bits of columns by row, those that fly right from bit 10]; column and row of the player, and whether it faces right;
//           oxygen [steps]; divers aboard; whether it is at the surface and breathed; timers and intervals [steps]; how often
//           the game became faster; last_action
//   action  0 = none, 1 = left, 2 = up, 3 = right, 4 = down, 5 = fire
//   reward  1 for each enemy; up to 10 for a full load of divers, by the oxygen left
struct Params { float sticky_action_prob; };
struct State {
  int num_enemies;
  Array<u32, MOST_ENEMIES> enemies;
  int num_divers;
  Array<u32, MOST_DIVERS> divers;
  int num_bullets;
  Array<u32, MOST_BULLETS> bullets;
  Array<u32, 10> enemy_bullets;
  int x, y, right, oxygen, aboard, surfaced, shot_timer, spawn_timer, diver_timer, spawn_interval, move_interval, ramps,
      last_action;
};
#include "drive/env.cuh"
#include "minatar.cuh"

constexpr u32 BOARD = (1u << SIDE) - 1u;
constexpr int OXYGEN = 200, CREW = 6, COOLDOWN = 5, ENEMY_COOLDOWN = 10;
constexpr int SPAWN_INTERVAL = 20, MOVE_INTERVAL = 5, DIVER_INTERVAL = 30, FASTEST = 2;
enum Channel { FRONT, BACK, BULLET, TRAIL, ENEMY_BULLET, FISH, SUBMARINE, AIR, LOAD, DIVER };

// What swims, in bits of a word: column 4, row 4, whether it swims right, steps until it moves 4, whether it is a submarine,
// steps until that fires 4. A bullet has column, row and direction.
struct Swimmer {
  int x, y;
  bool right;
  int timer;
  bool armed;
  int shot_timer;

  static DEVICE Swimmer of(u32 word) {
    return {(int)(word & 15u), (int)(word >> 4 & 15u), (word >> 8 & 1u) != 0,
            (int)(word >> 9 & 15u), (word >> 13 & 1u) != 0, (int)(word >> 14)};
  }
  // A new one, at the side from which it swims.
  static DEVICE Swimmer entering(int y, bool right, int timer) { return {right ? 0 : SIDE - 1, y, right, timer, false, 0}; }
  DEVICE u32 word() const {
    return (u32)x | (u32)y << 4 | (u32)right << 8 | (u32)timer << 9 | (u32)armed << 13 | (u32)shot_timer << 14;
  }
  DEVICE bool at(int column, int row) const { return x == column && y == row; }
  // Moves by a column; returns whether that is on the board.
  DEVICE bool move() {
    x += right ? 1 : -1;
    return x >= 0 && x < SIDE;
  }
};

// What is removed at the end of a step, as bits of the lists, and what has happened.
struct Turn {
  u32 enemies, bullets;
  int hits;
  bool lost;

  DEVICE void hit(int enemy, int bullet) {
    enemies |= 1u << enemy;
    bullets |= 1u << bullet;
    ++hits;
  }
};

template <int N> DEVICE void append(Array<u32, N>& list, int& count, const Swimmer& swimmer) {
  static_assert(N <= 32, "the bits of Turn");
  if (count == N) return;
  list[count] = swimmer.word();
  ++count;
}

template <int N> DEVICE void remove(Array<u32, N>& list, int& count, u32 gone) {
  if (gone == 0) return;
  int kept = 0;
  for (int k = 0; k < count; ++k) {
    const u32 word = list[k];
    list[k] = 0u;
    if (gone >> k & 1u) continue;
    list[kept] = word;
    ++kept;
  }
  count = kept;
}

// An enemy comes into a row, unless others swim against it there.
DEVICE void add_enemy(State& s, const Random::Bits words) {
  Swimmer enemy = Swimmer::entering(1 + Random::below(words.z, 8), words.x >> 31 != 0, s.move_interval);
  enemy.armed = Random::below(words.y, 3) == 0;
  enemy.shot_timer = enemy.armed ? ENEMY_COOLDOWN : 0;
  bool blocked = false;
  for (int k = 0; k < s.num_enemies; ++k) {
    const Swimmer other = Swimmer::of(s.enemies[k]);
    blocked |= other.y == enemy.y && other.right != enemy.right;
  }
  if (!blocked) append(s.enemies, s.num_enemies, enemy);
}

// The player's bullets fly, the newest first, and hit the oldest fish in their cell, or else the oldest submarine.
DEVICE void move_bullets(State& s, Turn& turn) {
  for (int b = s.num_bullets - 1; b >= 0; --b) {
    Swimmer bullet = Swimmer::of(s.bullets[b]);
    if (!bullet.move()) {
      turn.bullets |= 1u << b;
      continue;
    }
    s.bullets[b] = bullet.word();
    int fish = -1, submarine = -1;
    for (int k = s.num_enemies - 1; k >= 0; --k) {
      const Swimmer enemy = Swimmer::of(s.enemies[k]);
      if (!enemy.at(bullet.x, bullet.y) || (turn.enemies >> k & 1u)) continue;
      if (enemy.armed) submarine = k;
      else fish = k;
    }
    if (fish >= 0) turn.hit(fish, b);
    else if (submarine >= 0) turn.hit(submarine, b);
  }
}

// Divers swim, the newest first; those that the player touches come aboard while there is room.
DEVICE void move_divers(State& s) {
  u32 gone = 0u;
  for (int k = s.num_divers - 1; k >= 0; --k) {
    Swimmer diver = Swimmer::of(s.divers[k]);
    const bool touches = s.aboard < CREW && diver.at(s.x, s.y);
    bool boards = touches, leaves = false;
    if (!touches && diver.timer > 0) --diver.timer;
    else if (!touches) {
      diver.timer = MOVE_INTERVAL;
      leaves = !diver.move();
      boards = s.aboard < CREW && diver.at(s.x, s.y);
    }
    s.aboard += boards;
    if (boards || leaves) gone |= 1u << k;
    else s.divers[k] = diver.word();
  }
  remove(s.divers, s.num_divers, gone);
}

// Fish or submarines swim, the newest first, and submarines fire. One that swims into a bullet of the player is hit.
template <bool ARMED> DEVICE void move_enemies(State& s, Turn& turn) {
  for (int k = s.num_enemies - 1; k >= 0; --k) {
    Swimmer enemy = Swimmer::of(s.enemies[k]);
    if (enemy.armed != ARMED || (turn.enemies >> k & 1u)) continue;
    turn.lost |= enemy.at(s.x, s.y);
    if (enemy.timer > 0) --enemy.timer;
    else {
      enemy.timer = s.move_interval;
      if (!enemy.move()) {
        turn.enemies |= 1u << k;
        continue;
      }
      int met = -1;
      for (int b = s.num_bullets - 1; b >= 0; --b) {
        if (!(turn.bullets >> b & 1u) && Swimmer::of(s.bullets[b]).at(enemy.x, enemy.y)) met = b;
      }
      if (enemy.at(s.x, s.y)) turn.lost = true;
      else if (met >= 0) turn.hit(k, met);
    }
    if (ARMED && enemy.shot_timer == 0) {
      enemy.shot_timer = ENEMY_COOLDOWN;
      s.enemy_bullets[enemy.y] = s.enemy_bullets[enemy.y] | 1u << (enemy.x + (enemy.right ? SIDE : 0));
    } else if (ARMED) --enemy.shot_timer;
    s.enemies[k] = enemy.word();
  }
}

// Returns whether an enemy bullet is where the player is.
DEVICE bool shot(const State& s) {
  const u32 row = s.enemy_bullets[s.y];
  return ((row | row >> SIDE) >> s.x & 1u) != 0;
}

DEVICE void move_enemy_bullets(State& s) {
  for (int y = 0; y < SIDE; ++y) {
    const u32 row = s.enemy_bullets[y], left = row & BOARD, right = row & BOARD << SIDE;
    s.enemy_bullets[y] = left >> 1 | (right << 1 & BOARD << SIDE);
  }
}

// Uses up oxygen, or refills it at the surface at the cost of a diver; returns the reward of a full load.
DEVICE int breathe(Env& env, Turn& turn) {
  State& s = env.state;
  turn.lost |= s.oxygen <= 0;
  if (s.y > 0) {
    --s.oxygen;
    s.surfaced = 0;
    return 0;
  }
  if (s.surfaced) return 0;
  if (s.aboard == 0) {
    turn.lost = true;
    return 0;
  }
  const bool full = s.aboard == CREW;
  const int reward = full ? s.oxygen / (OXYGEN / SIDE) : 0;
  env.metrics.rescues += full;
  s.aboard = full ? -1 : s.aboard - 1;
  s.oxygen = OXYGEN;
  s.surfaced = 1;
  if (DIFFICULTY_RAMPING == DIFFICULTY_RAMPING_ON && (s.spawn_interval > 1 || s.move_interval > FASTEST)) {
    s.move_interval -= s.move_interval > FASTEST && s.ramps % 2 == 1;
    s.spawn_interval -= s.spawn_interval > 1;
    ++s.ramps;
  }
  return reward;
}

DEVICE void reset(Env& env) {
  if (!env.team.leader()) return;
  State& s = env.state;
  s = {};
  s.x = 5;
  s.oxygen = OXYGEN;
  s.surfaced = 1;
  s.spawn_interval = s.spawn_timer = SPAWN_INTERVAL;
  s.diver_timer = DIVER_INTERVAL;
  s.move_interval = MOVE_INTERVAL;
}

DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  State& s = env.state;
  const int action = effective_action(env);
  const bool spawns = s.spawn_timer == 0, dives = s.diver_timer == 0;
  if (spawns || dives) {
    const Random::Bits words = env.random.bits(0, 1);
    const int way = Random::below(words.w, 16);
    if (spawns) add_enemy(s, words);
    if (dives) append(s.divers, s.num_divers, Swimmer::entering(1 + way % 8, way >= 8, MOVE_INTERVAL));
  }
  s.spawn_timer = (spawns ? s.spawn_interval : s.spawn_timer) - 1;
  s.diver_timer = (dives ? DIVER_INTERVAL : s.diver_timer) - 1;

  s.x = math::clamp(s.x + (action == 3) - (action == 1), 0, SIDE - 1);
  s.y = math::clamp(s.y + (action == 4) - (action == 2), 0, SIDE - 2);
  if (action == 1 || action == 3) s.right = action == 3;
  if (action == 5 && s.shot_timer == 0) {
    s.shot_timer = COOLDOWN;
    append(s.bullets, s.num_bullets, {s.x, s.y, s.right != 0, 0, false, 0});
  }
  s.shot_timer = math::max(s.shot_timer - 1, 0);

  Turn turn = {0u, 0u, 0, false};
  move_bullets(s, turn);
  move_divers(s);
  move_enemies<true>(s, turn);
  turn.lost |= shot(s);
  move_enemy_bullets(s);
  turn.lost |= shot(s);
  move_enemies<false>(s, turn);
  remove(s.enemies, s.num_enemies, turn.enemies);
  remove(s.bullets, s.num_bullets, turn.bullets);
  env.player.reward(0) = (float)(turn.hits + breathe(env, turn));
  return turn.lost;
}

// Shows a list in a channel, that of submarines after that of fish, and where they have been.
template <int N> DEVICE void show(Cells& cells, const Array<u32, N>& list, int count, int channel, bool trail) {
  for (int k = 0; k < count; ++k) {
    const Swimmer swimmer = Swimmer::of(list[k]);
    const int behind = swimmer.x + (swimmer.right ? -1 : 1);
    cells.set(swimmer.x, swimmer.y, channel + swimmer.armed);
    if (trail && behind >= 0 && behind < SIDE) cells.set(behind, swimmer.y, TRAIL);
  }
}

DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  const State& s = env.state;
  const int load = math::max(s.aboard, 0);
  Cells cells(env);
  cells.set(s.x, s.y, FRONT);
  cells.set(s.x + (s.right ? -1 : 1), s.y, BACK);
  for (int y = 1; y < SIDE - 1; ++y) {
    const u32 row = s.enemy_bullets[y];
    cells.set_row(y, ENEMY_BULLET, row | row >> SIDE);
  }
  cells.set_row(SIDE - 1, AIR, (1u << math::max(s.oxygen, 0) / (OXYGEN / SIDE)) - 1u);
  cells.set_row(SIDE - 1, LOAD, ((1u << load) - 1u) << (SIDE - 1 - load));
  show(cells, s.bullets, s.num_bullets, BULLET, false);
  show(cells, s.enemies, s.num_enemies, FISH, true);
  show(cells, s.divers, s.num_divers, DIVER, true);
}
