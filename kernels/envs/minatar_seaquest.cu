// minatar_seaquest.cu -- Rescue divers, shoot fish and submarines, and surface for air, as in MinAtar's Seaquest.
//
//   state   count swimmers, oldest first, one word each. Enemy bullets [bits of columns by row, those that fly right from
//           bit 10]. Column, row and direction of the player. Oxygen [steps]. Divers aboard. Whether it has surfaced and not
//           dived. Timers and intervals [steps]. ramps: how often the game became faster. last_action
//   action  0 = none, 1 = left, 2 = up, 3 = right, 4 = down, 5 = fire
//   reward  1 for each enemy. Up to 9 for a full load of divers, depending on the oxygen left
struct Params { float sticky_action_prob; };
struct State {
  int count;
  Array<u32, 34> swimmers;
  Array<u32, 10> enemy_bullets;
  int x, y, right, oxygen, aboard, surfaced, shot_timer, spawn_timer, diver_timer, spawn_interval, move_interval, ramps,
      last_action;
};
#include "drive/env.cuh"
#include "envs/minatar.cuh"

constexpr int MOST = 34;  // maximum number of swimmers
constexpr u32 BOARD = (1u << SIDE) - 1u;
constexpr int OXYGEN = 200, CREW = 6, COOLDOWN = 5, ENEMY_COOLDOWN = 10;
constexpr int SPAWN_INTERVAL = 20, MOVE_INTERVAL = 5, DIVER_INTERVAL = 30, FASTEST = 2;
enum Channel { FRONT, BACK, BULLET, TRAIL, ENEMY_BULLET, FISH, SUBMARINE, AIR, LOAD, DIVER };

// A bullet of the player, a fish, a submarine or a diver. Bits of its word: channel 4, column 4, row 4, whether it swims right 1,
// steps until it moves 3, steps until it fires 4. The word of nothing is 0.
struct Swimmer {
  int kind, x, y;
  bool right;
  int timer, shot_timer;

  static DEVICE Swimmer of(u32 word) {
    return {(int)(word & 15u), (int)(word >> 4 & 15u), (int)(word >> 8 & 15u),
            (word >> 12 & 1u) != 0, (int)(word >> 13 & 7u), (int)(word >> 16)};
  }
  DEVICE u32 word() const {
    return (u32)kind | (u32)x << 4 | (u32)y << 8 | (u32)right << 12 | (u32)timer << 13 | (u32)shot_timer << 16;
  }
  DEVICE bool at(int column, int row) const { return x == column && y == row; }
  DEVICE int next(bool backwards = false) const { return right != backwards ? x + 1 : x - 1; }  // column
};

// Append a swimmer. A full list drops it, which cannot happen in a game.
DEVICE void append(State& s, const Swimmer& swimmer) {
  if (s.count == MOST) return;
  s.swimmers[s.count] = swimmer.word();
  ++s.count;
}

// Return the oldest swimmer of a kind in a cell, or -1.
DEVICE int find(const State& s, int kind, int x, int y) {
  int found = -1;
  for (int k = s.count - 1; k >= 0; --k) {
    const Swimmer swimmer = Swimmer::of(s.swimmers[k]);
    if (swimmer.kind == kind && swimmer.at(x, y)) found = k;
  }
  return found;
}

// Add an enemy to a row, unless others swim against it there.
DEVICE void add_enemy(State& s, const Random::Bits words) {
  const int kind = Random::below(words.y, 3) == 0 ? SUBMARINE : FISH, y = 1 + Random::below(words.z, 8);
  const bool right = words.x >> 31 != 0;
  for (int k = s.count - 1; k >= 0; --k) {
    const Swimmer other = Swimmer::of(s.swimmers[k]);
    if ((other.kind == FISH || other.kind == SUBMARINE) && other.y == y && other.right != right) return;
  }
  append(s, {kind, right ? 0 : SIDE - 1, y, right, s.move_interval, kind == SUBMARINE ? ENEMY_COOLDOWN : 0});
}

DEVICE bool on_board(int x) { return x >= 0 && x < SIDE; }

// Move the player's bullets, newest first. Each hits the oldest fish in its cell, or otherwise the oldest submarine. Returns hits.
DEVICE int move_bullets(State& s) {
  int hits = 0;
  for (int k = s.count - 1; k >= 0; --k) {
    Swimmer bullet = Swimmer::of(s.swimmers[k]);
    if (bullet.kind != BULLET) continue;
    bullet.x = bullet.next();
    const int fish = find(s, FISH, bullet.x, bullet.y), hit = fish >= 0 ? fish : find(s, SUBMARINE, bullet.x, bullet.y);
    s.swimmers[k] = on_board(bullet.x) && hit < 0 ? bullet.word() : 0u;
    if (hit >= 0) s.swimmers[hit] = 0u;
    hits += hit >= 0;
  }
  return hits;
}

// Move one kind of swimmers, newest first. Divers come aboard while there is room. Submarines fire. An enemy that swims into a
// bullet is hit. Returns hits.
template <int KIND> DEVICE int swim(State& s, bool& terminated) {
  int hits = 0;
  for (int k = s.count - 1; k >= 0; --k) {
    Swimmer it = Swimmer::of(s.swimmers[k]);
    if (it.kind != KIND) continue;
    // Swim. A diver that boards in this step does not.
    const bool met = it.at(s.x, s.y), waits = KIND == DIVER && met && s.aboard < CREW, moves = !waits && it.timer == 0;
    it.timer = moves ? (KIND == DIVER ? MOVE_INTERVAL : s.move_interval) : it.timer - !waits;
    it.x = moves ? it.next() : it.x;
    const bool here = it.at(s.x, s.y), there = on_board(it.x);
    bool gone = !there;
    // Submarines fire, divers come aboard, and enemies meet the player or a bullet.
    if (KIND == SUBMARINE && there) {
      const bool fires = it.shot_timer == 0;
      it.shot_timer = fires ? ENEMY_COOLDOWN : it.shot_timer - 1;
      if (fires) s.enemy_bullets[it.y] = s.enemy_bullets[it.y] | 1u << (it.x + (it.right ? SIDE : 0));
    }
    if (KIND == DIVER) {
      const bool boards = (met || here) && s.aboard < CREW;
      s.aboard += boards;
      gone |= boards;
    } else {
      terminated |= met || here;
      const int bullet = moves && !here ? find(s, BULLET, it.x, it.y) : -1;
      if (bullet >= 0) s.swimmers[bullet] = 0u;
      hits += bullet >= 0;
      gone |= bullet >= 0;
    }
    s.swimmers[k] = gone ? 0u : it.word();
  }
  return hits;
}

// Move enemy bullets. Returns whether one was at the player's cell, or arrives there.
DEVICE bool move_enemy_bullets(State& s) {
  u32 passed = s.enemy_bullets[s.y];
  for (int y = 1; y < SIDE - 1; ++y) {
    const u32 row = s.enemy_bullets[y], right = row & BOARD << SIDE;
    s.enemy_bullets[y] = (row & BOARD) >> 1 | (right << 1 & BOARD << SIDE);
  }
  passed |= s.enemy_bullets[s.y];
  return ((passed | passed >> SIDE) >> s.x & 1u) != 0;
}

// Use up oxygen, or refill it at the surface at the cost of a diver. Returns the reward of a full load.
DEVICE int breathe(Env& env, bool& terminated) {
  State& s = env.state;
  const bool under = s.y > 0, comes_up = !under && !s.surfaced, refills = comes_up && s.aboard != 0;
  const bool full = refills && s.aboard == CREW;
  const int reward = full ? s.oxygen / (OXYGEN / SIDE) : 0;
  terminated |= s.oxygen <= 0 || (comes_up && !refills);
  env.metrics.rescues += full;
  s.aboard = full ? -1 : s.aboard - refills;
  s.oxygen = refills ? OXYGEN : s.oxygen - under;
  s.surfaced = !under && (s.surfaced || refills);
  if (DIFFICULTY_RAMPING == DIFFICULTY_RAMPING_ON && refills && (s.spawn_interval > 1 || s.move_interval > FASTEST)) {
    s.move_interval -= s.move_interval > FASTEST && s.ramps % 2 == 1;
    s.spawn_interval -= s.spawn_interval > 1;
    ++s.ramps;
  }
  return reward;
}

DEVICE void reset(Env& env) {
  if (!env.team.leader()) return;
  env.state = {0, {}, {}, 5, 0, 0, OXYGEN, 0, 1, 0, SPAWN_INTERVAL, DIVER_INTERVAL, SPAWN_INTERVAL, MOVE_INTERVAL, 0, 0};
}

DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  State& s = env.state;
  const int action = effective_action(env);
  const bool spawns = s.spawn_timer == 0, dives = s.diver_timer == 0;
  if (spawns || dives) {
    const Random::Bits words = env.random.bits(0, 1);
    const int way = Random::below(words.w, 16), right = way / 8;
    if (spawns) add_enemy(s, words);
    if (dives) append(s, {DIVER, right ? 0 : SIDE - 1, 1 + way % 8, right != 0, MOVE_INTERVAL, 0});
  }
  s.spawn_timer = (spawns ? s.spawn_interval : s.spawn_timer) - 1;
  s.diver_timer = (dives ? DIVER_INTERVAL : s.diver_timer) - 1;

  s.x = math::clamp(s.x + (action == 3) - (action == 1), 0, SIDE - 1);
  s.y = math::clamp(s.y + (action == 4) - (action == 2), 0, SIDE - 2);
  if (action == 1 || action == 3) s.right = action == 3;
  if (action == 5 && s.shot_timer == 0) {
    s.shot_timer = COOLDOWN;
    append(s, {BULLET, s.x, s.y, s.right != 0, 0, 0});
  }
  s.shot_timer = math::max(s.shot_timer - 1, 0);

  bool terminated = false;
  int reward = move_bullets(s);
  swim<DIVER>(s, terminated);
  reward += swim<SUBMARINE>(s, terminated);
  terminated |= move_enemy_bullets(s);
  reward += swim<FISH>(s, terminated);
  env.player.reward(0) = (float)(reward + breathe(env, terminated));

  int left = 0;
  for (int k = 0; k < s.count; ++k) {
    const u32 word = s.swimmers[k];
    s.swimmers[k] = 0u;
    s.swimmers[left] = word;
    left += word != 0;
  }
  s.count = left;
  return terminated;
}

DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  const State& s = env.state;
  const int load = math::clamp(s.aboard, 0, SIDE - 1);
  Cells cells(env);
  cells.set(s.x, s.y, FRONT);
  cells.set(s.x + (s.right ? -1 : 1), s.y, BACK);
  for (int y = 1; y < SIDE - 1; ++y) cells.set_row(y, ENEMY_BULLET, s.enemy_bullets[y] | s.enemy_bullets[y] >> SIDE);
  cells.set_row(SIDE - 1, AIR, (1u << math::clamp(s.oxygen / (OXYGEN / SIDE), 0, SIDE)) - 1u);
  cells.set_row(SIDE - 1, LOAD, ((1u << load) - 1u) << (SIDE - 1 - load));
  for (int k = 0; k < s.count; ++k) {
    const Swimmer it = Swimmer::of(s.swimmers[k]);
    cells.set(it.x, it.y, it.kind);
    if (it.kind != BULLET && on_board(it.next(true))) cells.set(it.next(true), it.y, TRAIL);
  }
}
