// forward.cu -- Forward passes: parameters of the action distribution, and values.
// Constants: those of network.cuh, PACKED_IN_SHARED (1: a GPU keeps the packed weights in shared memory).
// call: kernel arguments (drive/launch.cuh).
#include "learn/exact/network.cuh"
#include "learn/observations.cuh"

struct Workspace {
  Tile tile;
  alignas(16) float packed[PACKED_IN_SHARED ? FORWARD_FLOATS : 1];  // mutant(constant 2): more room, never read
};
// Compute tiles first_tile, first_tile + teams, ... of the rows.
DEVICE void forward_tiles(const Forward& call, const Team team, Workspace& work, const int first_tile) {
  Tile& tile = work.tile;
  const float* const packed = PACKED_IN_SHARED ? work.packed : call.packed;
  if constexpr (PACKED_IN_SHARED) copy_to_shared<FORWARD_FLOATS>(team, work.packed, call.packed);
  const bool finite = may_skip(packed);
  for (int first = first_tile * TILE; first < call.rows; first += call.teams * TILE) {  // mutant(swap <): a tile without rows
    const int left = call.rows - first, rows = left < TILE ? left : TILE;  // mutant(swap <): equal where they meet
    // Load a tile of observations.
    for (int i : team.each(rows * THREADS_PER_ROW)) {
      const int m = i / THREADS_PER_ROW;
      read_observation(tile, m, i % THREADS_PER_ROW, observation(call, first + m), call.center, call.scale);
    }
    team.sync();  // observations and weights are written before other threads read them
    find_zeros(tile, rows, finite);
    forward(team, tile, rows, packed);
    // Epilogue: draw actions or store their parameters, and store the values.
    store_parameters(call, team.rank, TEAM, first, rows, [&](int m) INLINED { return tile.parameters(m); });
    for (int m : team.each(rows)) call.value[first + m] = *tile.value(m);
    team.sync();  // the tile is read before it is reused. mutant(dropped sync, dropped statement): overwritten, and a sync follows
  }
}

#include "drive/launch.cuh"
KERNEL(forward_rows, Forward, call.teams, forward_tiles(call, team, *work, e))
