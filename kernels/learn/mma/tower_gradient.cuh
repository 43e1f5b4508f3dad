// tower_gradient.cuh -- the gradient of a tower over tiles of a minibatch, by one block.
#pragma once
#include "learn/mma/tensor.cuh"
#include "learn/mma/tile.cuh"

// Entries of observations that one thread prefetches for a tile.
constexpr int OWN_ENTRIES = own_count(ROWS * OBS);
constexpr bool ENTRIES_AHEAD = OWN_ENTRIES <= 8;

// Puts entry d of the observation of row m to where `forward` reads it.
template <int T> DEVICE void put_entry(const Learn& call, Tower<T>& tower, const int m, const int d, const float x) {
  tower.observations().row(m)[d] = seen(x, call.center, call.scale, d);
}

// What the losses of a minibatch's rows need besides the rows.
struct Losses {
  Coefficients of;
  Moments moments;
  bool wanted;  // false: nothing is learnt
};

// Stores the gradient of tower T over tiles share, share + shares, ... of a minibatch in `sums`, which may overlap the tower, and
// calls report(k, sum) for what is reported. `memory` has the first tile's rows, whose observations are prefetched before begin(),
// which loads the tower's weights and returns `Losses`.
template <int T, class Begin, class Told>
DEVICE void add_tiles(const Learn& call, Tower<T>& tower, TileMemory& memory, const Chunks& chunks, const Team team,
                      const int share, const int shares, float* sums, Begin begin, Told report) {
  // visit(k, m, d): the k-th of its entries is entry d of the observation of row m.
  const auto each_entry = [&](auto visit) INLINED {
    UNROLL_TIMES(ENTRIES_AHEAD ? OWN_ENTRIES : 1) for (int k = 0; k < OWN_ENTRIES; ++k) {
      const int i = team.rank + k * TEAM;
      if (ROWS * OBS % TEAM == 0 || i < ROWS * OBS) visit(k, i / OBS, i % OBS);  // equal(swap * 1): more work, same result
    }
  };
  float entries[ENTRIES_AHEAD ? OWN_ENTRIES : 1];  // equal(constant): more room, never read
  const auto load_entries = [&]() INLINED {
    if constexpr (ENTRIES_AHEAD) each_entry([&](int k, int m, int d) INLINED { entries[k] = entry_of(call, memory.row[m], d); });
  };
  load_entries();
  const Losses losses = begin();
  if (!losses.wanted) return;
  Gradient<T> gradient;
  gradient.clear();
  float reported[REPORTED] = {};
  for (int first = share * ROWS; first < chunks.rows; first += shares * ROWS) {
    each_entry([&](int k, int m, int d) INLINED {
      // equal(constant): never read there
      put_entry(call, tower, m, d, ENTRIES_AHEAD ? entries[ENTRIES_AHEAD ? k : 0] : entry_of(call, memory.row[m], d));
    });
    // Prefetch what is needed after the forward pass, and the next tile's rows.
    Transition row[OWN_ROWS];
    int next[OWN_ROWS];
    bool there[OWN_ROWS];
    each_own_row(team, [&](int k, int m) INLINED {
      there[k] = memory.row[m] >= 0;
      if (there[k]) row[k].load(call, Place(call, memory.row[m]));  // equal(dropped condition): loaded of no row, unused
      next[k] = chunks.row(first + shares * ROWS + m);
    });
    team.sync();
    forward(team, tower);
    each_own_row(team, [&](int k, int m) INLINED {
      float metric[METRICS];
      differentiate<T>(losses.of, tower, m, there[k], row[k], losses.moments, metric);
      UNROLL for (int j = 0; j < REPORTED; ++j) reported[j] += metric[j];  // equal(swap <): one number more, never read
      memory.row[m] = next[k];
    });
    team.sync();
    load_entries();
    backward(team, tower, gradient);
    team.sync();  // rows are written again
  }
  gradient.store(team, sums);
  sum_members(team, reported, memory.sums, report);
}
