// forward.cu -- what a network gives for rows of observations: parameters of the distribution of actions, and values.
//
// Rows (e, i) of N environments with C agents; with `at`, rows (slot, e, i) of observations at the steps named there.
#include "learn/network.cuh"

struct Workspace { Tile tile; };
struct Forward {
  int rows, num_envs, agents;  // how many, N, C
  const float* obs;         // (N, C, OBS), or (T, N, C, OBS)
  const i64* at;            // (slots, N): steps, in [0, T); or null
  const float* center;      // (OBS) or null: observations are normalised
  const float* scale;       // (OBS)
  const float* copies;      // the network's weights, as network.cuh has them
  float* parameters;        // (rows, PARAMETERS) or null
  float* value;             // (rows)
};

// Tile [TILE * e, TILE * (e + 1)) of the rows.
DEVICE void forward_tile(const Forward& call, const Team team, Tile& tile, const int e) {
  const int first = e * TILE, left = call.rows - first, rows = left < TILE ? left : TILE;
  for (int m : team.each(rows)) {
    const int row = first + m, per_step = call.num_envs * call.agents;
    size_type source = (size_type)row;
    if (call.at != nullptr) {
      const int place = row % per_step;
      source = (size_type)call.at[row / per_step * call.num_envs + place / call.agents] * per_step + place;
    }
    const float* const obs = call.obs + source * OBS;
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
