// connect_four_solver.cpp -- result of every move of a Connect Four position under perfect play: loss -1, draw 0, win 1.
//
// Alpha-beta search with a transposition table. Cells are bits: seven for each column from the bottom, the seventh of which is
// always 0. A position is the discs of the player who is to move, `mine`, and all discs, `taken`.
#include <cstdint>
#include <vector>

typedef std::uint64_t u64;

constexpr int COLUMNS = 7, CELLS = 42;
constexpr u64 BOTTOM = 0x40810204081ull, BOARD = 63 * BOTTOM;
constexpr u64 column_bits(int column) { return 63ull << 7 * column; }

// Empty cells that would complete four in line.
static u64 completing(u64 discs, u64 taken) {
  u64 found = 0;
  for (int apart : {1, 6, 7, 8}) {
    const u64 up = discs << apart & discs << 2 * apart, down = discs >> apart & discs >> 2 * apart;
    found |= up & discs << 3 * apart;    // XXX.
    found |= up & discs >> apart;        // XX.X
    found |= down & discs << apart;      // X.XX
    found |= down & discs >> 3 * apart;  // .XXX
  }
  return found & BOARD & ~taken;
}

static u64 landings(u64 taken) { return (taken + BOTTOM) & BOARD & ~taken; }

// Known bounds of values. The key mine + taken + BOTTOM differs for all positions.
struct Table {
  struct Entry { u64 key; std::int8_t low, high; };
  std::vector<Entry> entries{1 << 22};
  Entry& at(u64 key) { return entries[(key * 0x9E3779B97F4A7C15ull) >> 42]; }
};

// Value for the player who is to move, who cannot win at once. A value up to alpha is an upper bound, one from beta on a lower
// bound.
static int search(Table& table, u64 mine, u64 taken, int alpha, int beta) {
  if (__builtin_popcountll(taken) >= CELLS - 1) return 0;  // nobody wins with the last disc
  const u64 threats = completing(taken ^ mine, taken);
  u64 moves = landings(taken);
  if (const u64 forced = moves & threats) {
    if (forced & (forced - 1)) return -1;
    moves = forced;
  }
  moves &= ~(threats >> 1);  // a disc below a threat lets the opponent win
  if (moves == 0) return -1;

  const u64 key = mine + taken + BOTTOM;
  Table::Entry known = table.at(key);
  if (known.key != key) known = {key, -1, 1};
  if (known.low > alpha) alpha = known.low;
  if (known.high < beta) beta = known.high;
  if (alpha >= beta) return alpha;

  // Moves that make the most threats first, among equals those near the centre.
  u64 ordered[COLUMNS];
  int scores[COLUMNS], count = 0;
  for (int column : {3, 2, 4, 1, 5, 0, 6}) {
    const u64 move = moves & column_bits(column);
    if (move == 0) continue;
    const int score = __builtin_popcountll(completing(mine | move, taken | move));
    int place = count++;
    for (; place > 0 && scores[place - 1] < score; --place) {
      ordered[place] = ordered[place - 1];
      scores[place] = scores[place - 1];
    }
    ordered[place] = move;
    scores[place] = score;
  }
  int best = alpha;
  for (int k = 0; k < count && best < beta; ++k) {
    const int value = -search(table, taken ^ mine, taken | ordered[k], -beta, -best);
    if (value > best) best = value;
  }
  if (best > alpha) known.low = (std::int8_t)best;
  if (best < beta) known.high = (std::int8_t)best;
  table.at(key) = known;
  return best;
}

// values: (count, 7), of each column -1, 0 or 1 for the player who is to move, or -2 if the column is full.
extern "C" void solve(const u64* mine, const u64* taken, std::int64_t count, std::int8_t* values) {
  static Table table;
  for (std::int64_t n = 0; n < count; ++n) {
    const u64 wins = completing(mine[n], taken[n]);
    for (int column = 0; column < COLUMNS; ++column) {
      const u64 move = landings(taken[n]) & column_bits(column), after = taken[n] | move;
      std::int8_t& value = values[n * COLUMNS + column];
      if (move == 0) value = -2;
      else if (move & wins) value = 1;
      else if (completing(taken[n] ^ mine[n], after) & landings(after)) value = -1;
      else value = (std::int8_t)-search(table, taken[n] ^ mine[n], after, -1, 1);
    }
  }
}
