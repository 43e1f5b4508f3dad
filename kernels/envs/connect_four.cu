// connect_four.cu -- Two players drop discs into seven columns until one of them has four in line.
//
//   state   discs of both players [bits of cells: seven for each column, from the bottom, of which the seventh is never set]
//   action  column of the player whose turn it is. The other player's action has no effect
//   reward  four in line: 1 and -1. A move into a full column: -1 for the player who made it
struct Params {};
struct State { Array<u32, 2> first, second; };
#include "drive/env.cuh"

constexpr int ROWS = 6, COLUMNS = 7;
constexpr u64 BOTTOM = 0x40810204081ull;  // bit 0 of each column
constexpr u64 FULL = BOTTOM * 63u;

DEVICE u64 joined(const Array<u32, 2>& words) { return (u64)words[1] << 32 | words[0]; }
DEVICE void split(Array<u32, 2>& words, u64 bits) {
  words[0] = (u32)bits;
  words[1] = (u32)(bits >> 32);
}

// Whether it is the second player's turn: the number of discs is odd.
DEVICE bool second_to_move(u64 taken) { return ((math::popcount((u32)taken) + math::popcount((u32)(taken >> 32))) & 1) != 0; }

// Cell into which a disc falls, or 0 if the column is full.
DEVICE u64 landing(u64 taken, int column) {
  const u64 column_bits = 63ull << 7 * column;
  return (taken + (1ull << 7 * column)) & column_bits & ~taken;
}

// Four in line: the bits of neighbors in a column, a row or a diagonal are 1, 7, 6 or 8 apart.
DEVICE bool four_in_line(u64 discs) {
  u64 found = 0;
  UNROLL for (int direction = 0; direction < 4; ++direction) {
    const int apart = direction == 0 ? 1 : 5 + direction;
    const u64 pairs = discs & discs >> apart;
    found |= pairs & pairs >> 2 * apart;
  }
  return found != 0;
}

DEVICE void reset(Env& env) {
  if (!env.team.leader()) return;
  u64 first = 0, second = 0;
  const Random::Bits words[2] = {env.random.bits(0, 0), env.random.bits(0, 1)};
  const int plies = Random::below(words[0].x, RANDOM_PLIES + 1);
  for (int ply = 0; ply < plies; ++ply) {
    const u32 word = words[(ply + 1) / 4].word(ply + 1);
    (ply % 2 == 0 ? first : second) |= landing(first | second, Random::below(word, COLUMNS));
  }
  split(env.state.first, first);
  split(env.state.second, second);
}

DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  State& s = env.state;
  const u64 first = joined(s.first), second = joined(s.second);
  const bool turn = second_to_move(first | second);
  const u64 disc = landing(first | second, turn ? env.second.action(0) : env.first.action(0));
  const u64 mine = (turn ? second : first) | disc;
  const bool illegal = disc == 0, won = !illegal && four_in_line(mine);
  const bool draw = !illegal && !won && (first | second | disc) == FULL;
  split(turn ? s.second : s.first, mine);

  const float gain = won ? 1.0f : illegal ? -1.0f : 0.0f, other = won ? -1.0f : 0.0f;
  env.first.reward(0) = turn ? other : gain;
  env.second.reward(0) = turn ? gain : other;
  env.first.active(0) = !turn;
  env.second.active(0) = turn;
  env.first.left(0) = env.second.left(0) = 0;
  env.metrics.draws += draw;
  env.metrics.illegal_moves += illegal;
  return won || illegal || draw;
}

// Observe own discs and the opponent's, row by row from the top.
template <class Player> DEVICE void show(const Player& player, u64 own, u64 opponent) {
  auto row = player.obs(0);
  UNROLL for (int cell = 0; cell < ROWS * COLUMNS; ++cell) {
    const int bit = 7 * (cell % COLUMNS) + ROWS - 1 - cell / COLUMNS;
    row[2 * cell] = (own >> bit & 1u) != 0;
    row[2 * cell + 1] = (opponent >> bit & 1u) != 0;
  }
  if constexpr (MASKS) {
    for (int column = 0; column < COLUMNS; ++column) player.mask(0, column) = landing(own | opponent, column) != 0;
  }
}

DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  const u64 first = joined(env.state.first), second = joined(env.state.second);
  show(env.first, first, second);
  show(env.second, second, first);
}
