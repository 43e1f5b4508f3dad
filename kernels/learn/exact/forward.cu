// forward.cu -- Forward passes: parameters of the action distribution, and values.
// Constants: those of network.cuh, NEAR_COPIES (1: a GPU keeps the packed weights in shared memory).
#include "learn/exact/network.cuh"
#include "learn/observations.cuh"

struct Workspace {
  Tile tile;
  alignas(16) float copies[NEAR_COPIES ? FORWARD_FLOATS : 1];  // equal(constant 2): more room, never read
};
// Split `share` of the rows: tiles share, share + shares, ...
DEVICE void forward_share(const Forward& call, const Team team, Workspace& work, const int share) {
  Tile& tile = work.tile;
  const float* const copies = NEAR_COPIES ? work.copies : call.copies;
  if constexpr (NEAR_COPIES) bring_near<FORWARD_FLOATS>(team, work.copies, call.copies);
  const bool finite = may_skip(copies);
  for (int first = share * TILE; first < call.rows; first += call.shares * TILE) {  // equal(swap <): a tile without rows
    const int left = call.rows - first, rows = left < TILE ? left : TILE;  // equal(swap <): equal where they meet
    // Load a tile of observations.
    for (int i : team.each(rows * SHARERS)) {
      const int m = i / SHARERS;
      read_observation(tile, m, i % SHARERS, observation(call, first + m), call.center, call.scale);
    }
    team.sync();  // observations and weights are written before other threads read them
    look(tile, rows, finite);
    forward(team, tile, rows, copies);
    // Epilogue: draw actions or store their parameters, and store the values.
    store_parameters(call, team.rank, TEAM, first, rows, [&](int m) INLINED { return tile.parameters(m); });
    for (int m : team.each(rows)) call.value[first + m] = *tile.value(m);
    team.sync();  // the tile is read before it is reused. equal(dropped sync, dropped statement): overwritten, and a sync follows
  }
}

#include "drive/launch.cuh"
KERNEL(forward_rows, Forward, call.shares, forward_share(call, team, *work, e))
