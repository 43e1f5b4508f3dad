// observations.cuh -- arguments of a forward pass.
//
// Rows (e, i) of N environments with C agents; with `at`, rows (slot, e, i) of observations at the steps named there.
// Constants: OBS, PARAMETERS, those of the distribution. Generated: GAUSSIAN (0 or 1).
#pragma once
#include "drive/random.cuh"  // before the next line, of whose files one alone is compiled
#include "drive/math.cuh"
#include "learn/observed.cuh"
#if GAUSSIAN
#include "train/sample_box.cuh"
#else
#include "train/sample_choices.cuh"
#endif

struct Forward {
  Sample sample;               // of actions, drawn as soon as their parameters are there; without `action`: none
  int rows, num_envs, agents;  // how many, N, C
  int shares;                  // among how many teams their tiles are shared out; a team loads the weights once
  const void* obs;          // (N, C) or (T, N, C) rows of observed.cuh
  const i64* at;            // (slots, N): steps, in [0, T); or null
  const float* center;      // (OBS) or null: observations are normalised
  const float* scale;       // (OBS)
  const float* copies;      // the network's weights, as layers.cuh has them
  float* parameters;        // (rows, PARAMETERS) or null; left where no actions are drawn
  float* value;             // (rows)
};

// Draws the actions of rows [first, first + rows), or stores their parameters: parameters_of(m) are those of row first + m.
template <class ParametersOf>
DEVICE void store_parameters(const Forward& call, const int rank, const int members, const int first, const int rows,
                             ParametersOf parameters_of) {
  if (call.sample.action != nullptr) {
    NO_UNROLL for (int m = rank; m < rows; m += members) sample_row(call.sample, first + m, parameters_of(m));
  } else if (call.parameters != nullptr) {
    float* const parameters = call.parameters + (size_type)first * PARAMETERS;
    for (int i = rank; i < rows * PARAMETERS; i += members) parameters[i] = parameters_of(i / PARAMETERS)[i % PARAMETERS];
  }
}

// The observation (OBS) of one row.
DEVICE const Observed* observation(const Forward& call, const int row) {
  size_type source = (size_type)row;
  if (call.at != nullptr) {
    const int per_step = call.num_envs * call.agents, place = row % per_step;
    source = (size_type)call.at[row / per_step * call.num_envs + place / call.agents] * per_step + place;
  }
  return observed(call.obs, source);
}
