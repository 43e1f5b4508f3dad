// outputs.cuh -- Arguments and results of forward passes on tensor cores.
//
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "learn/observations.cuh"
#include "learn/mma/tensor_layers.cuh"

struct TensorForward {
  Forward forward;
  const float* tensors[TENSORS];  // weights and biases in the network's own memory
};

// Return the value of a row from the last tower's outputs.
DEVICE float value_of(const Forward& call, [[maybe_unused]] const int row, const float* results) {
#if Q_VALUES
  return action_values(call.sample, row, results).top;
#else
  return results[TOWERS == 1 ? PARAMETERS : 0];
#endif
}
// Store the outputs of tower T for rows [first, first + rows) of the pass. results_of(m) returns those of row first + m.
template <int T, class ResultsOf>
DEVICE void store_outputs(const Forward& call, const int rank, const int members, const int first, const int rows,
                          ResultsOf results_of) {
  if constexpr (T == 0) store_parameters(call, rank, members, first, rows, results_of);
  if constexpr (T == TOWERS - 1) {
    for (int m = rank; m < rows; m += members) call.value[first + m] = value_of(call, first + m, results_of(m));
  }
}
