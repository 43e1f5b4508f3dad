// observations.cuh -- Arguments of a forward pass.
//
// Rows are (e, i) of N environments with C agents. If `at` is set, rows are (slot, e, i), and `at` holds the steps of their
// observations.
// Constants: OBS, PARAMETERS, those of the distribution. Generated: CATEGORICAL and GAUSSIAN (0 or 1).
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "train/greedy.cuh"  // included here because only one branch below is compiled
#include "train/mixed.cuh"   // likewise
#include "learn/observed.cuh"
#if Q_VALUES
#include "train/sample_greedy.cuh"
#elif CATEGORICAL && GAUSSIAN
#include "train/sample_mixed.cuh"
#elif GAUSSIAN
#include "train/sample_box.cuh"
#else
#include "train/sample_choices.cuh"
#endif

struct Forward {
  Sample sample;               // draws actions as soon as their parameters are computed. Without `action`, none are drawn
  int rows, num_envs, agents;  // number of rows, N, C
  int teams;                   // number of teams that divide the tiles. Each team loads the weights once
  const void* obs;          // (N, C) or (T, N, C) rows of observed.cuh
  const i64* at;            // (slots, N): steps in [0, T), or null
  const float* center;      // (OBS): means for normalizing observations, or null
  const float* scale;       // (OBS): reciprocal deviations
  const float* packed;      // packed weights (layers.cuh)
  float* parameters;        // (rows, PARAMETERS) or null. Not written if actions are drawn
  float* value;             // (rows)
};

// Draw the actions of rows [first, first + rows), or store their parameters. parameters_of(m) returns those of row first + m.
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

// Return the observation (OBS) of one row.
DEVICE const Observed* observation(const Forward& call, const int row) {
  size_type source = (size_type)row;
  if (call.at != nullptr) {
    const int per_step = call.num_envs * call.agents, place = row % per_step;
    source = (size_type)call.at[row / per_step * call.num_envs + place / call.agents] * per_step + place;
  }
  return observed(call.obs, source);
}
