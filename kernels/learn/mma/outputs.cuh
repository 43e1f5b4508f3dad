// outputs.cuh -- Arguments and results of forward passes on tensor cores.
#pragma once
#include "learn/observations.cuh"
#include "learn/mma/tensor_layers.cuh"

struct TensorForward {
  Forward forward;
  const float* tensors[TENSORS];  // weights and biases in the network's own memory
};

// Store the outputs of tower T for rows [first, first + rows) of the pass. results_of(m) returns those of row first + m.
template <int T, class ResultsOf>
DEVICE void store_outputs(const Forward& call, const int rank, const int members, const int first, const int rows,
                          ResultsOf results_of) {
  if constexpr (T == 0) store_parameters(call, rank, members, first, rows, results_of);
  if constexpr (T == TOWERS - 1) {
    for (int m = rank; m < rows; m += members) call.value[first + m] = results_of(m)[TOWERS == 1 ? PARAMETERS : 0];
  }
}
