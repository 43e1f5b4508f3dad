// wide_rows.cuh -- Memory that wide_gradient.cu writes and wide_sums.cu reads.
//
// Matrices of `capacity` rows: observations as bits or normalized in bfloat16, then in bfloat16 for each layer of each tower its
// outputs, if it is hidden, and the gradients w.r.t. them.
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "drive/halves.cuh"
#include "learn/layers.cuh"
#include "learn/minibatches.cuh"
#include "learn/wide/bit_operands.cuh"

struct WideLearn {
  int from, count;                // rows of the minibatch that this launch processes: [from, from + count)
  int capacity;                   // rows of the matrices
  int adds;                       // 1: add to `partial_sums`, which has the gradients of earlier rows
  Learn learn;
  const int* table;               // number of rows, rows of each chunk or 0 if they differ, then the arrays of struct Chunks
  bf16* rows;                     // the matrices
  float* reported;                // (tiles, TOWERS, METRICS): sums over the rows of a tile
  const float* tensors[2 * TOWERS * LAYERS];  // weights and biases in the network's own memory
  const bf16* fragments;
};

// Columns of all matrices before the outputs of layer (tower, layer), or before the gradients w.r.t. them.
constexpr int columns_before(const bool gradients, const int tower, const int layer) {
  int sum = STORES_BITS ? 2 * OBS_WORDS : padded(OBS);
  for (int t = 0; t <= tower; ++t) {
    for (int l = 0; l < (t < tower ? LAYERS : layer); ++l) sum += (l < LAYERS - 1 ? 2 : 1) * padded(WIDTH[t][l + 1]);
  }
  return sum + (gradients && layer < LAYERS - 1 ? padded(WIDTH[tower][layer + 1]) : 0);
}
// Matrices (capacity, OUT_PAD) of a layer's outputs and of the gradients w.r.t. them, and (capacity, IN_PAD) of its inputs.
template <int T, int L> DEVICE bf16* rows_of_outputs(const WideLearn& call) {
  return call.rows + (size_type)columns_before(false, T, L) * call.capacity;
}
template <int T, int L> DEVICE bf16* rows_of_gradients(const WideLearn& call) {
  return call.rows + (size_type)columns_before(true, T, L) * call.capacity;
}
template <int T, int L> DEVICE bf16* rows_of_inputs(const WideLearn& call) {
  if constexpr (L == 0) return call.rows;
  else return rows_of_outputs<T, L - 1>(call);
}
