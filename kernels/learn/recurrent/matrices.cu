// matrices.cu -- A network's weights in bfloat16 for a library's products: each layer's matrix, then its biases. Columns and biases
// are padded with zeros to a multiple of ALIGNED.
// Constants: those of layers.cuh, where each layer is a tower, ALIGNED.
#include "learn/layers.cuh"
#include "drive/halves.cuh"

struct Workspace {};

struct Matrices {
  bf16* to;
  const float* weights[TENSORS];
};

constexpr int aligned(const int n) { return (n + ALIGNED - 1) / ALIGNED * ALIGNED; }
// Offset of a layer's matrix.
constexpr int matrix_before(const int layer) {
  int sum = 0;
  for (int k = 0; k < layer; ++k) sum += aligned(WIDTH[k][1]) * (aligned(WIDTH[k][0]) + 1);
  return sum;
}

DEVICE void round_row(const Matrices& call, const Team team, const int e) {
  visit_row(e, [&](auto layer, const int row, int) INLINED {
    typedef decltype(layer) Here;
    constexpr int ACROSS = aligned(Here::IN), BEGIN = matrix_before(Here::NUMBER), BIASES = BEGIN + aligned(Here::OUT) * ACROSS;
    const bool biases = row == Here::OUT;
    const float* const from = call.weights[2 * Here::NUMBER + biases] + (biases ? 0 : row * Here::IN);
    bf16* const to = call.to + (biases ? BIASES : BEGIN + row * ACROSS);
    UNROLL_TIMES(8) for (int k : team.each(biases ? Here::OUT : Here::IN)) to[k] = from[k];
  });
}

#include "drive/launch.cuh"
KERNEL(round_weights, Matrices, ROWS_OF_WEIGHTS, round_row(call, team, e))
