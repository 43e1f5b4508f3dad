// layers.cuh -- Layers of perceptrons with one or two towers, and the layouts of packed weights and gradients.
//
// A tower is a sequence of LAYERS linear layers with an activation between them. Actor and critic are two towers, or one tower
// whose last output is the value. Constants: OBS, PARAMETERS (of the action distribution), TOWERS, LAYERS, RELU (0: tanh).
// Generated: WIDTH[tower][layer], starting with the observation. Rows are padded with zeros:
//   packed     packed weights. For forward passes, each layer's weights transposed, (IN, padded OUT), then its biases. For
//              backward passes, the weights of all layers but the first, (OUT, padded IN)
//   gradients  each layer's OUT rows (padded IN), then its biases (padded OUT). At the end METRICS reported sums
//   chunks     accumulators of a gradient, in the same layout. A team of one CPU thread has (IN, padded OUT) for layers that read
//              observations
#pragma once
#include "learn/exact/lanes.cuh"
#include "learn/functions.cuh"
#include "generated/spaces.cuh"

using namespace policy;  // functions.cuh

#ifndef PACK_FIRST
#define PACK_FIRST 0     // 1: backward passes also compute the gradient w.r.t. the inputs of the first layers
#endif
#ifndef ACTIVATE_LAST
#define ACTIVATE_LAST 0  // 1: an activation follows the last layer
#endif

#ifndef LAYER_NORM
#define LAYER_NORM 0     // 1: on tensor cores, a layer normalization follows each hidden layer
#endif

#ifndef BLOCKS_PER_TILE
#define BLOCKS_PER_TILE 1  // blocks that share the weights' gradient of a tile (mma/tensor_gradient.cu)
#endif

#ifndef Q_VALUES
#define Q_VALUES 0       // 1: the outputs are action values of one discrete head (PQN)
#endif

#ifndef OBSERVES
#define OBSERVES 1       // 0: the first layers read the results of another kernel
#endif

constexpr int SEGMENT = SIDE_FLOATS == 1 ? 1 : PAD;  // columns that one thread accumulates
constexpr int METRICS = PAD;  // length of the last row: reported metrics, summed over rows
// Layers of a tower and normalizations. The gains and biases of a normalization are a layer with one input.
constexpr int PARTS_OF_TOWER = LAYERS + LAYER_NORM * (LAYERS - 1);
constexpr int TENSORS = 2 * TOWERS * PARTS_OF_TOWER;  // weights and biases in the network's own layout, (OUT, IN) and (OUT)

// Whether a chunk's gradient stores the layer's weights transposed, so that zeros of observations can be skipped.
constexpr bool turned(const int layer) { return ALONE && OBSERVES && layer == 0; }
constexpr int chunk_weights(const int in, const int out, const int layer) {
  return turned(layer) ? in * padded(out) : out * padded(in);
}

enum Size { FORWARD_PACKED, BACKWARD_PACKED, GRADIENT, CHUNK, GRADIENT_ROWS, OUTPUTS };
// Size of the layers before (tower, layer): floats of either part of `packed`, of `gradients`, of a chunk or of one row of a tile.
// GRADIENT_ROWS counts rows.
constexpr int before(const Size what, const int tower, const int layer) {
  int sum = what == OUTPUTS ? padded(OBS) : 0;
  for (int t = 0; t < TOWERS; ++t) {  // mutant(swap <): no further tower exists
    for (int l = 0; l < LAYERS; ++l) {
      if (t > tower || (t == tower && l >= layer)) return sum;
      const int in = WIDTH[t][l], out = WIDTH[t][l + 1];
      if (what == GRADIENT && LAYER_NORM && l < LAYERS - 1) sum += out * padded(1) + padded(out);
      sum += what == FORWARD_PACKED ? (in + 1) * padded(out)
           : what == BACKWARD_PACKED ? (l == 0 && !PACK_FIRST ? 0 : out * padded(in))
           : what == GRADIENT ? out * padded(in) + padded(out)
           : what == CHUNK ? chunk_weights(in, out, l) + padded(out)
           : what == GRADIENT_ROWS ? out + 1
           : padded(out);
    }
  }
  return sum;
}
template <int T, int L> struct Layer {
  static constexpr int IN = WIDTH[T][L], OUT = WIDTH[T][L + 1], IN_PAD = padded(IN), OUT_PAD = padded(OUT);
  static constexpr bool FIRST = L == 0, LAST = L == LAYERS - 1, ACTIVATED = !LAST || ACTIVATE_LAST;
  static constexpr bool NORMALIZED = LAYER_NORM && !LAST;
  // Its weights are tensor 2 * NUMBER of the network, its biases the next one. Those of a normalization follow.
  static constexpr int NUMBER = T * PARTS_OF_TOWER + (1 + LAYER_NORM) * L;
  static constexpr int FORWARD_BEFORE = before(FORWARD_PACKED, T, L);  // offset in `packed`
  // mutant(constant): no further tower exists
  static constexpr int BACKWARD_BEFORE = before(FORWARD_PACKED, TOWERS, 0) + before(BACKWARD_PACKED, T, L);
  typedef Layer<LAST ? T + 1 : T, LAST ? 0 : L + 1> Next;
};

constexpr int GRADIENT_FLOATS = before(GRADIENT, TOWERS, 0) + METRICS;
constexpr int CHUNK_FLOATS = before(CHUNK, TOWERS, 0) + METRICS;
constexpr int ROWS_OF_WEIGHTS = before(GRADIENT_ROWS, TOWERS, 0);
constexpr int FORWARD_FLOATS = before(FORWARD_PACKED, TOWERS, 0);
constexpr int PACKED_FLOATS = FORWARD_FLOATS + before(BACKWARD_PACKED, TOWERS, 0);

// ---- rows of gradients ----

// Call visit(layer, row, offset) for row e of `gradients`, e in [0, ROWS_OF_WEIGHTS). Row OUT holds the biases. `offset` is the
// index of the row's first number.
template <class Here = Layer<0, 0>, int FIRST_ROW = 0, int FIRST = 0, class Visit>
DEVICE void visit_row(const int e, Visit visit) {
  constexpr int ROWS = Here::OUT + 1;
  if (e < FIRST_ROW + ROWS) visit(Here{}, e - FIRST_ROW, FIRST + (e - FIRST_ROW) * Here::IN_PAD);
  else if constexpr (Here::NUMBER + 1 < TOWERS * LAYERS) {
    visit_row<typename Here::Next, FIRST_ROW + ROWS, FIRST + Here::OUT * Here::IN_PAD + Here::OUT_PAD>(e, visit);
  }
}
