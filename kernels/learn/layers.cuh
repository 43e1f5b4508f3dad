// layers.cuh -- the layers of perceptrons with one or two towers, and the layout of their packed weights and gradients.
//
// A tower is a chain of LAYERS linear layers with an activation between them. Actor and critic are two towers, or one whose
// last output is the value. Constants: OBS, PARAMETERS (of the distribution), TOWERS, LAYERS, RELU (0: tanh). Generated:
// WIDTH[tower][layer], from the observation on. Rows are padded with zeros:
//   copies     for forward passes each layer's weights transposed, (IN, padded OUT), then its biases; then for backward passes
//              the weights of all but first layers, (OUT, padded IN)
//   gradients  each layer's OUT rows (padded IN), then its biases (padded OUT); then METRICS sums
//   chunks     the same while it is added up; one member alone has (IN, padded OUT) of layers that see observations
#pragma once
#include "learn/exact/lanes.cuh"
#include "learn/functions.cuh"
#include "generated/spaces.cuh"

using namespace policy;  // functions.cuh

#ifndef COPY_FIRST
#define COPY_FIRST 0     // 1: backward passes go on before the first layers, too
#endif
#ifndef ACTIVATE_LAST
#define ACTIVATE_LAST 0  // 1: the last layer is followed by an activation, too
#endif

#ifndef OBSERVES
#define OBSERVES 1       // 0: the first layers read what others have computed
#endif

constexpr int STRIP = SIDE_FLOATS == 1 ? 1 : PAD;  // columns that one member adds up
constexpr int METRICS = PAD;  // numbers of the last row: sums over rows of what is reported
constexpr int TENSORS = 2 * TOWERS * LAYERS;  // weights and biases of each layer, as the network has them: (OUT, IN), (OUT)

// Whether a layer's weights stand in the other order in a chunk's gradient: zeros of observations can be skipped there.
constexpr bool turned(const int layer) { return ALONE && OBSERVES && layer == 0; }
constexpr int chunk_weights(const int in, const int out, const int layer) { return turned(layer) ? in * padded(out) : out * padded(in); }

enum Size { FORWARD_COPIES, BACKWARD_COPIES, GRADIENT, CHUNK, GRADIENT_ROWS, OUTPUTS };
// Sizes of the layers before (tower, layer): floats of either part of `copies`, of `gradients`, of a chunk's, of one row of a tile; rows.
constexpr int before(const Size what, const int tower, const int layer) {
  int sum = what == OUTPUTS ? padded(OBS) : 0;
  for (int t = 0; t < TOWERS; ++t) {  // equal(swap <): there is nothing else there
    for (int l = 0; l < LAYERS; ++l) {
      if (t > tower || (t == tower && l >= layer)) return sum;
      const int in = WIDTH[t][l], out = WIDTH[t][l + 1];
      sum += what == FORWARD_COPIES ? (in + 1) * padded(out)
           : what == BACKWARD_COPIES ? (l == 0 && !COPY_FIRST ? 0 : out * padded(in))
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
  static constexpr int NUMBER = T * LAYERS + L;  // its weights are tensor 2 * NUMBER of the network, its biases the next
  static constexpr int FORWARD_BEFORE = before(FORWARD_COPIES, T, L);  // its place in `copies`
  // equal(constant): there is nothing else there
  static constexpr int BACKWARD_BEFORE = before(FORWARD_COPIES, TOWERS, 0) + before(BACKWARD_COPIES, T, L);
  typedef Layer<LAST ? T + 1 : T, LAST ? 0 : L + 1> Next;
};

constexpr int GRADIENT_FLOATS = before(GRADIENT, TOWERS, 0) + METRICS;
constexpr int CHUNK_FLOATS = before(CHUNK, TOWERS, 0) + METRICS;
constexpr int ROWS_OF_WEIGHTS = before(GRADIENT_ROWS, TOWERS, 0);
constexpr int FORWARD_FLOATS = before(FORWARD_COPIES, TOWERS, 0);
constexpr int COPIED_FLOATS = FORWARD_FLOATS + before(BACKWARD_COPIES, TOWERS, 0);

// ---- rows of gradients ----

// visit(Layer, its row, or OUT: its biases, the row's first number) for row e of `gradients`, in [0, ROWS_OF_WEIGHTS).
template <class Here = Layer<0, 0>, int FIRST_ROW = 0, int FIRST = 0, class Visit>
DEVICE void visit_row(const int e, Visit visit) {
  constexpr int ROWS = Here::OUT + 1;
  if (e < FIRST_ROW + ROWS) visit(Here{}, e - FIRST_ROW, FIRST + (e - FIRST_ROW) * Here::IN_PAD);
  else if constexpr (Here::NUMBER + 1 < TOWERS * LAYERS) {
    visit_row<typename Here::Next, FIRST_ROW + ROWS, FIRST + Here::OUT * Here::IN_PAD + Here::OUT_PAD>(e, visit);
  }
}
