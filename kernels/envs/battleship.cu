// battleship.cu -- Find four hidden ships on a board of SIZE x SIZE cells, as POPGym's Battleship.
//
//   state   ships, shots [one bit for each cell, row by row], last cell [-1 before the first shot], and whether that was a hit
//   action  row, column of the next shot
//   reward  1 / SHIP_CELLS for a hit, -1 / (cells without a ship) for a miss, or for a cell that was shot at before
struct Params {};
struct State { Array<u32, WORDS> ships, shots; int last, hit; };
#include "drive/env.cuh"

constexpr float HIT = 1.0f / (float)SHIP_CELLS, MISS = -1.0f / (float)(SIZE * SIZE - SHIP_CELLS);

// Place a ship along a row or a column, uniformly over the board. Returns whether all its cells were free.
DEVICE bool place(State& s, int length, const Random::Bits word) {
  const int along = Random::below(word.y, SIZE - length + 1), across = Random::below(word.z, SIZE);
  const bool down = word.x >> 31 != 0;
  const int first = down ? along * SIZE + across : across * SIZE + along, stride = down ? SIZE : 1;
  const int end = first + length * stride;
  u32 taken = 0;
  for (int cell = first; cell < end; cell += stride) taken |= s.ships[cell / 32] >> (cell % 32) & 1u;
  if (taken != 0) return false;
  for (int cell = first; cell < end; cell += stride) s.ships[cell / 32] = s.ships[cell / 32] | 1u << (cell % 32);
  return true;
}

DEVICE void reset(Env& env) {
  if (!env.team.leader()) return;
  State& s = env.state;
  for (int w = 0; w < WORDS; ++w) s.ships[w] = s.shots[w] = 0u;
  s.last = -1;
  s.hit = 0;
  for (int ship = 0; ship < 4; ++ship) {
    const int length = 2 + (ship > 0) + (ship > 2);  // 2, 3, 3, 4
    for (int draw = 0; !place(s, length, env.random.bits(ship, draw)); ++draw) {}
  }
}

DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  State& s = env.state;
  const int cell = env.player.action(0, 0) * SIZE + env.player.action(0, 1), word = cell / 32;
  const u32 shots = s.shots[word], bit = 1u << (cell % 32);
  s.last = cell;
  s.hit = (s.ships[word] & ~shots & bit) != 0;
  s.shots[word] = shots | bit;
  env.player.reward(0) = s.hit ? HIT : MISS;
  env.metrics.repeats += (shots & bit) != 0;
  u32 afloat = 0;
  for (int w = 0; w < WORDS; ++w) afloat |= s.ships[w] & ~s.shots[w];
  return afloat == 0;
}

// Miss or hit of the last shot, then its row and its column, one-hot. Row and column are 0 before the first shot.
DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  const State& s = env.state;
  const bool began = s.last >= 0;
  auto row = env.player.obs(0);
  row[0] = s.hit ? 0.0f : 1.0f;
  row[1] = s.hit ? 1.0f : 0.0f;
  for (int k = 0; k < SIZE; ++k) {
    row[2 + k] = began && s.last / SIZE == k ? 1.0f : 0.0f;
    row[2 + SIZE + k] = began && s.last % SIZE == k ? 1.0f : 0.0f;
  }
}
