// outputs.cuh -- what a kernel for matrix units is told of a forward pass, and what leaves of a tower's outputs.
// Constants: those of layers.cuh.
#pragma once
#include "learn/observations.cuh"
#include "learn/tensor_layers.cuh"

struct TensorForward {
  Forward forward;
  const float* tensors[TENSORS];  // the network's own memory
};

// Writes the outputs of tower T for rows [first, first + rows) of the pass, by members rank, rank + members, ...
// results_of(m): where those of row first + m are.
template <int T, class ResultsOf>
DEVICE void leave_outputs(const Forward& call, const int rank, const int members, const int first, const int rows,
                          ResultsOf results_of) {
  if (T == 0 && call.parameters != nullptr) {
    float* const parameters = call.parameters + (size_type)first * PARAMETERS;
    for (int i = rank; i < rows * PARAMETERS; i += members) parameters[i] = results_of(i / PARAMETERS)[i % PARAMETERS];
  }
  if constexpr (T == TOWERS - 1) {
    for (int m = rank; m < rows; m += members) call.value[first + m] = results_of(m)[TOWERS == 1 ? PARAMETERS : 0];
  }
}
