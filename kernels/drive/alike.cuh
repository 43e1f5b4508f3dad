// alike.cuh -- Write a long row of observations by the whole team. Most of its entries are equal for all agents of a group.
//
//   for (int i = 0; i < COUNT; ++i) put_row<SIZE, FROM, UNTIL>(env.team, env.NAME.obs(i), same, other);
//
// Entry n is same(n) for n in [FROM, UNTIL), and other(n) otherwise. same(n) is cheap, such as a load from struct Shared. Rows of
// arbitrary length begin anywhere in a cache line. The lanes of a warp are therefore aligned with the line, not with the row: a
// store that crosses a cache line is two requests, and the rate of requests is limited.
#pragma once
#include "drive/env.cuh"

template <int SIZE, int FROM, int UNTIL, class RowOf, class Same, class Other>
DEVICE void put_row(const Team team, const RowOf row, const Same same, const Other other) {
  const int begin = team.rank - (int)((size_type)&row[0] / sizeof(obs_t) % TEAM);  // entry of turn 0. Negative: before the row
  // In turns [FIRST, LAST), the entries of all threads are in [FROM, UNTIL).
  constexpr int FIRST = (FROM + TEAM - 1 + TEAM - 1) / TEAM, LAST = FIRST < UNTIL / TEAM ? UNTIL / TEAM : FIRST;
  constexpr int TURNS = (SIZE + TEAM - 1 + TEAM - 1) / TEAM;
  const auto put_some = [&](const int first, const int last) INLINED {
    for (int turn = first; turn < last; ++turn) {
      const int n = begin + turn * TEAM;
      if (n < 0 || n >= SIZE) continue;
      if (n < FROM || n >= UNTIL) row[n] = other(n);
      else row[n] = same(n);
    }
  };
  put_some(0, FIRST);
  // Loads precede stores, because the compiler does not know that a store changes none of the loaded values.
  constexpr int AT_ONCE = TEAM > 1 ? 8 : 1, WHOLE = FIRST + (LAST - FIRST) / AT_ONCE * AT_ONCE;
  for (int turn = FIRST; turn < WHOLE; turn += AT_ONCE) {
    float kept[AT_ONCE];
    UNROLL for (int k = 0; k < AT_ONCE; ++k) kept[k] = same(begin + (turn + k) * TEAM);
    UNROLL for (int k = 0; k < AT_ONCE; ++k) row[begin + (turn + k) * TEAM] = kept[k];
  }
  for (int turn = WHOLE; turn < LAST; ++turn) row[begin + turn * TEAM] = same(begin + turn * TEAM);
  put_some(LAST, TURNS);
}
