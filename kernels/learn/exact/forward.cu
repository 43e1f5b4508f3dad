// forward.cu -- forward passes: parameters of the distribution of actions, and values.
// Constants: those of network.cuh; NEAR_COPIES (1: a GPU keeps the weights in shared memory).
#include "learn/exact/network.cuh"
#include "learn/observations.cuh"

struct Workspace {
  Tile tile;
  alignas(16) float copies[NEAR_COPIES ? FORWARD_FLOATS : 1];  // equal(constant 2): more room, never read
};
// Tiles share, share + shares, ... of the rows.
DEVICE void forward_share(const Forward& call, const Team team, Workspace& work, const int share) {
  Tile& tile = work.tile;
  const float* const copies = NEAR_COPIES ? work.copies : call.copies;
  if constexpr (NEAR_COPIES) bring_near<FORWARD_FLOATS>(team, work.copies, call.copies);
  const bool finite = may_skip(copies);
  for (int first = share * TILE; first < call.rows; first += call.shares * TILE) {  // equal(swap <): a tile without rows
    const int left = call.rows - first, rows = left < TILE ? left : TILE;  // equal(swap <): equal where they meet
    for (int i : team.each(rows * SHARERS)) {
      const int m = i / SHARERS;
      read_observation(tile, m, i % SHARERS, observation(call, first + m), call.center, call.scale);
    }
    team.sync();
    look(tile, rows, finite);
    forward(team, tile, rows, copies);
    store_parameters(call, team.rank, TEAM, first, rows, [&](int m) INLINED { return tile.parameters(m); });
    for (int m : team.each(rows)) call.value[first + m] = *tile.value(m);
    team.sync();  // its memory is written again; equal(dropped sync, dropped statement): overwritten, and a sync follows
  }
}

#include "drive/launch.cuh"
KERNEL(forward_rows, Forward, call.shares, forward_share(call, team, *work, e))
