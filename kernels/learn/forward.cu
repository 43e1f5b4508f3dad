// forward.cu -- what a network gives for rows of observations: parameters of the distribution of actions, and values.
//
// Constants: those of network.cuh; NEAR_COPIES: whether the weights are kept in a GPU's shared memory.
//
// Rows (e, i) of N environments with C agents; with `at`, rows (slot, e, i) of observations at the steps named there.
#include "learn/network.cuh"

struct Workspace {
  Tile tile;
  alignas(16) float copies[NEAR_COPIES ? FORWARD_FLOATS : 1];
};
struct Forward {
  int rows, num_envs, agents;  // how many, N, C
  const float* obs;         // (N, C, OBS), or (T, N, C, OBS)
  const i64* at;            // (slots, N): steps, in [0, T); or null
  const float* center;      // (OBS) or null: observations are normalised
  const float* scale;       // (OBS)
  const float* copies;      // the network's weights, as layers.cuh has them
  float* parameters;        // (rows, PARAMETERS) or null
  float* value;             // (rows)
};

// Tile [TILE * e, TILE * (e + 1)) of the rows.
DEVICE void forward_tile(const Forward& call, const Team team, Workspace& work, const int e) {
  Tile& tile = work.tile;
  const float* const copies = NEAR_COPIES ? work.copies : call.copies;
  if constexpr (NEAR_COPIES) bring_near<FORWARD_FLOATS>(team, work.copies, call.copies);
  const int first = e * TILE, left = call.rows - first, rows = left < TILE ? left : TILE;
  for (int i : team.each(rows * SHARERS)) {
    const int m = i / SHARERS, row = first + m, per_step = call.num_envs * call.agents;
    size_type source = (size_type)row;
    if (call.at != nullptr) {
      const int place = row % per_step;
      source = (size_type)call.at[row / per_step * call.num_envs + place / call.agents] * per_step + place;
    }
    read_observation(tile, m, i % SHARERS, call.obs + source * OBS, call.center, call.scale);
  }
  team.sync();
  forward(team, tile, rows, copies);
  for (int m : team.each(rows)) {
    if (call.parameters != nullptr) {
      for (int k = 0; k < PARAMETERS; ++k) call.parameters[(size_type)(first + m) * PARAMETERS + k] = tile.parameters(m)[k];
    }
    call.value[first + m] = *tile.value(m);
  }
}

#include "drive/launch.cuh"
KERNEL(forward_rows, Forward, (call.rows + TILE - 1) / TILE, forward_tile(call, team, *work, e))
