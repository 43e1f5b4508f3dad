// observations.cuh -- the rows that a network looks at to act, or to value.
//
// Rows (e, i) of N environments with C agents; with `at`, rows (slot, e, i) of observations at the steps named there.
// Constants: OBS, PARAMETERS.
#pragma once

struct Forward {
  int rows, num_envs, agents;  // how many, N, C
  int shares;                  // among how many teams their tiles are shared out; a team loads the weights once
  const float* obs;         // (N, C, OBS), or (T, N, C, OBS)
  const i64* at;            // (slots, N): steps, in [0, T); or null
  const float* center;      // (OBS) or null: observations are normalised
  const float* scale;       // (OBS)
  const float* copies;      // the network's weights, as layers.cuh has them
  float* parameters;        // (rows, PARAMETERS) or null
  float* value;             // (rows)
};

// The observation (OBS) of one row.
DEVICE const float* observation(const Forward& call, const int row) {
  size_type source = (size_type)row;
  if (call.at != nullptr) {
    const int per_step = call.num_envs * call.agents, place = row % per_step;
    source = (size_type)call.at[row / per_step * call.num_envs + place / call.agents] * per_step + place;
  }
  return call.obs + source * OBS;
}
