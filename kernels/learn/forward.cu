// forward.cu -- what a network gives for rows of observations: parameters of the distribution of actions, and values.
#include "learn/network.cuh"
#include "learn/observations.cuh"

struct Workspace { Tile tile; };
// Tile [TILE * e, TILE * (e + 1)) of the rows.
DEVICE void forward_tile(const Forward& call, const Team team, Tile& tile, const int e) {
  const int first = e * TILE, left = call.rows - first, rows = left < TILE ? left : TILE;
  for (int m : team.each(rows)) {
    const float* const obs = observation(call, first + m);
    float* const input = tile.input() + m * padded(OBS);
    for (int d = 0; d < OBS; ++d) input[d] = seen(obs[d], call.center, call.scale, d);
  }
  team.sync();
  forward(team, tile, rows, call.copies);
  for (int m : team.each(rows)) {
    if (call.parameters != nullptr) {
      for (int k = 0; k < PARAMETERS; ++k) call.parameters[(size_type)(first + m) * PARAMETERS + k] = tile.parameters(m)[k];
    }
    call.value[first + m] = *tile.value(m);
  }
}

#include "drive/launch.cuh"
KERNEL(forward_rows, Forward, (call.rows + TILE - 1) / TILE, forward_tile(call, team, work->tile, e))
