// alike.cuh -- writes a long row of observations by the whole team, where most entries are the same for all agents of a group.
//
//   for (int i = 0; i < COUNT; ++i) put_row<SIZE, FROM, UNTIL>(env.team, env.NAME.obs(i), same, other);
//
// Entry n is same(n), for n in [FROM, UNTIL) and cheap, such as a load from struct Shared, or else other(n). Rows of any length
// begin anywhere in a line of memory. So the lanes of a warp do not begin with the row but where the line does: a store that
// is spread over two lines would be two requests to the cache, of which it takes a limited number in a second.
#pragma once
#include "drive/env.cuh"

template <int SIZE, int FROM, int UNTIL, class RowOf, class Same, class Other>
DEVICE void put_row(const Team team, const RowOf row, const Same same, const Other other) {
  const int begin = team.rank - (int)((size_type)&row[0] / sizeof(obs_t) % TEAM);  // of this member; before the row, or in it
  // In turns [FIRST, LAST) of all members all entries are of the first kind.
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
  UNROLL_TIMES(8) for (int turn = FIRST; turn < LAST; ++turn) row[begin + turn * TEAM] = same(begin + turn * TEAM);
  put_some(LAST, TURNS);
}
