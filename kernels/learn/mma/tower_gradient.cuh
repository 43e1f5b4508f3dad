// tower_gradient.cuh -- Gradient of a tower over tiles of a minibatch, in one block.
//
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "learn/mma/tensor.cuh"
#include "learn/mma/tile.cuh"

// Inputs of a minibatch's losses, in addition to its rows.
struct Losses {
  Coefficients of;
  Moments moments;
  bool wanted;  // false: nothing is learnt
};

// Store the gradient of tower T over tiles first_tile, first_tile + teams, ... of a minibatch in `sums`, which may overlap the
// tower, and call report(k, sum) for each reported metric. `memory` has the first tile's rows. Their observations are prefetched
// before begin(), which loads the tower's weights and returns `Losses`. `adding`: the team, with ranks among the blocks that share
// a tile.
template <int T, class Begin, class Report>
DEVICE void add_tiles(const Learn& call, Tower<T>& tower, TileMemory& memory, const Chunks& chunks, const Team team,
                      const Team adding, const int first_tile, const int teams, float* sums, Begin begin, Report report) {
  EntriesAhead<TEAM, ROWS> entries;
  entries.load(call, team, memory.row);
  const Losses losses = begin();
  if (!losses.wanted) return;
  Gradient<T> gradient;
  gradient.clear();
  float reported[REPORTED] = {};
  for (int first = first_tile * ROWS; first < chunks.rows; first += teams * ROWS) {
    entries.put(call, team, memory.row, [&](int m, int d, float x) INLINED { tower.observations().row(m)[d] = x; });
    // Prefetch the other inputs of the losses, and the next tile's rows.
    Transition row[OWN_ROWS];
    int next[OWN_ROWS];
    bool there[OWN_ROWS];
    each_own_row(team, [&](int k, int m) INLINED {
      there[k] = memory.row[m] >= 0;
      if (there[k]) row[k].load(call, RowIndex(call, memory.row[m]));  // mutant(dropped condition): unused without a row
      next[k] = chunks.row(first + teams * ROWS + m);
    });
    team.sync();  // observations and weights are written before they are read
    forward(team, tower);
    // Differentiate the loss of each row w.r.t. the outputs of the network.
    each_own_row(team, [&](int k, int m) INLINED {
      float metric[METRICS];
      differentiate<T>(losses.of, tower, m, there[k], row[k], losses.moments, metric);
      UNROLL for (int j = 0; j < REPORTED; ++j) reported[j] += metric[j];  // mutant(swap <): one number more, never read
      memory.row[m] = next[k];
    });
    team.sync();  // gradients w.r.t. outputs and the next rows are written before they are read
    // Prefetch the next tile's observations during the backward pass.
    entries.load(call, team, memory.row);
    backward(team, adding, tower, gradient);
    team.sync();  // observations are read before they are overwritten
  }
  gradient.store(adding, sums);
  sum_members(team, reported, memory.sums, [&](int k, float sum) INLINED { if (adding.rank < TEAM) report(k, sum); });
}
