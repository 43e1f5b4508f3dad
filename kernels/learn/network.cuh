// network.cuh -- perceptrons with one or two towers: forwards, and backwards from the derivatives of what they return.
//
// A tower is a chain of LAYERS linear layers with an activation between them. Actor and critic are two towers, or one whose
// last output is the value. Constants: OBS, PARAMETERS (of the distribution), TOWERS, LAYERS, RELU (0: tanh), TILE (rows at
// once); WIDTH[tower][layer], widths from the observation on, is generated.
//
// Three arrays have the weights or what goes with them, rows padded with zeros:
//   copies     what forward and backward read: each layer's weights transposed, (IN, padded OUT), then its biases; and, of all
//              but first layers, as they are, (OUT, padded IN)
//   gradients  rows of derivatives: each layer's OUT rows (padded IN), then one of its biases (padded OUT); after all layers
//              one row of METRICS sums
#pragma once
#include "learn/multiply.cuh"
#include "learn/neuron.cuh"
#include "generated/spaces.cuh"

constexpr int STRIP = SIDE_FLOATS == 1 ? 1 : PAD;  // columns that one member adds up
constexpr int METRICS = PAD;  // numbers of the last row: sums over rows of what is reported

enum Size { COPIED, GRADIENT, GRADIENT_ROWS, OUTPUTS };
// What the layers before layer (tower, layer) take: numbers of `copies` and of `gradients`, rows of `gradients`, and numbers
// of one row of a tile.
constexpr int before(const Size what, const int tower, const int layer) {
  int sum = what == OUTPUTS ? padded(OBS) : 0;
  for (int t = 0; t < TOWERS; ++t) {
    for (int l = 0; l < LAYERS; ++l) {
      if (t > tower || (t == tower && l >= layer)) return sum;
      const int in = WIDTH[t][l], out = WIDTH[t][l + 1];
      sum += what == COPIED ? (in + 1) * padded(out) + (l == 0 ? 0 : out * padded(in))
           : what == GRADIENT ? out * padded(in) + padded(out)
           : what == GRADIENT_ROWS ? out + 1
           : padded(out);
    }
  }
  return sum;
}
template <int T, int L> struct Layer {
  static constexpr int IN = WIDTH[T][L], OUT = WIDTH[T][L + 1], IN_PAD = padded(IN), OUT_PAD = padded(OUT);
  static constexpr bool FIRST = L == 0, LAST = L == LAYERS - 1;
  static constexpr int NUMBER = T * LAYERS + L;  // its weights are tensor 2 * NUMBER of the network, its biases the next
  static constexpr int COPIES_BEFORE = before(COPIED, T, L);
  typedef Layer<LAST ? T + 1 : T, LAST ? 0 : L + 1> Next;
};

constexpr int GRADIENT_FLOATS = before(GRADIENT, TOWERS, 0) + METRICS;
constexpr int ROWS_OF_WEIGHTS = before(GRADIENT_ROWS, TOWERS, 0);
constexpr int TILE_FLOATS = TILE * before(OUTPUTS, TOWERS, 0);

// What a team knows of TILE rows: observations, then the outputs of each layer; on the way back, derivatives by them.
struct Tile {
  alignas(16) float numbers[TILE_FLOATS];

  DEVICE float* input() { return numbers; }
  template <int T, int L> DEVICE float* outputs() { return numbers + TILE * before(OUTPUTS, T, L); }
  template <int T, int L> DEVICE float* inputs() {
    if constexpr (L == 0) return numbers;
    else return outputs<T, L - 1>();
  }
  DEVICE float* parameters(int row) { return outputs<0, LAYERS - 1>() + row * padded(WIDTH[0][LAYERS]); }
  DEVICE float* value(int row) {
    if constexpr (TOWERS == 1) return parameters(row) + PARAMETERS;
    else return outputs<1, LAYERS - 1>() + row * PAD;
  }
};

DEVICE float activation(float x) { return policy::activation<RELU>(x); }
// The activation's derivative, from its result.
DEVICE float activation_slope(float y) {
  if constexpr (RELU) return y > 0.0f ? 1.0f : 0.0f;
  else return 1.0f - y * y;
}

using policy::seen;

// ---- forwards ----

template <int T, int L> DEVICE void forward_from(const Team team, Tile& tile, const int rows, const float* copies) {
  if constexpr (T < TOWERS) {
    typedef Layer<T, L> Here;
    const float* const weights = copies + Here::COPIES_BEFORE;
    const float* const biases = weights + Here::IN * Here::OUT_PAD;
    float* const out = tile.outputs<T, L>();
    multiply<Here::OUT_PAD>(team, rows, Here::IN, {tile.inputs<T, L>(), Here::IN_PAD, 1}, weights, Here::OUT_PAD,
                            [&](int, int n) INLINED { return biases[n]; },
                            [&](int m, int n, float sum) INLINED { out[m * Here::OUT_PAD + n] = Here::LAST ? sum : activation(sum); });
    team.sync();
    forward_from<T + (L == LAYERS - 1), L == LAYERS - 1 ? 0 : L + 1>(team, tile, rows, copies);
  }
}
// All layers, of `rows` rows whose observations all members can see.
DEVICE void forward(const Team team, Tile& tile, const int rows, const float* copies) { forward_from<0, 0>(team, tile, rows, copies); }

// ---- backwards ----

// Of one layer and those before it: `tile` has the derivatives by its outputs. The rows of `gradients` begin at 0 if `first`, else
// their chains go on.
template <int T, int L> DEVICE void backward_from(const Team team, Tile& tile, const int rows, const float* copies, float* gradients, const bool first) {
  typedef Layer<T, L> Here;
  float* const slopes = tile.outputs<T, L>();
  float* const inputs = tile.inputs<T, L>();
  float* const weights = gradients + before(GRADIENT, T, L);
  float* const biases = weights + Here::OUT * Here::IN_PAD;
  multiply<Here::IN_PAD>(team, Here::OUT, rows, {slopes, 1, Here::OUT_PAD}, inputs, Here::IN_PAD,
                         [&](int m, int n) INLINED { return first ? 0.0f : weights[m * Here::IN_PAD + n]; },
                         [&](int m, int n, float sum) INLINED { weights[m * Here::IN_PAD + n] = sum; });
  for (int strip : team.each(Here::OUT_PAD / STRIP)) {
    Lanes<STRIP> sum{}, row;
    if (!first) sum.load(biases + strip * STRIP);
    for (int m = 0; m < rows; ++m) {
      row.load(slopes + m * Here::OUT_PAD + strip * STRIP);
      sum.add(row);
    }
    sum.store(biases + strip * STRIP);
  }
  if constexpr (L > 0) {
    team.sync();  // all have read the inputs
    const float* const own = copies + Here::COPIES_BEFORE + (Here::IN + 1) * Here::OUT_PAD;
    multiply<Here::IN_PAD>(team, rows, Here::OUT, {slopes, Here::OUT_PAD, 1}, own, Here::IN_PAD,
                           [&](int, int) INLINED { return 0.0f; },
                           [&](int m, int n, float sum) INLINED {
                             float& input = inputs[m * Here::IN_PAD + n];
                             input = sum * activation_slope(input);
                           });
    team.sync();
    backward_from<T, L - 1>(team, tile, rows, copies, gradients, first);
  }
}
// Adds `rows` rows to the gradients; derivatives by the towers' last outputs stand in their place, and all members see them.
DEVICE void backward(const Team team, Tile& tile, const int rows, const float* copies, float* gradients, const bool first) {
  backward_from<0, LAYERS - 1>(team, tile, rows, copies, gradients, first);
  if constexpr (TOWERS == 2) backward_from<1, LAYERS - 1>(team, tile, rows, copies, gradients, first);
}

// ---- rows of gradients ----

// visit(Layer, row of the layer, or OUT: its biases; first number of that row) for row e of `gradients`, in [0, ROWS_OF_WEIGHTS).
template <class Here = Layer<0, 0>, int FIRST_ROW = 0, int FIRST = 0, class Visit> DEVICE void visit_row(const int e, Visit visit) {
  constexpr int ROWS = Here::OUT + 1;
  if (e < FIRST_ROW + ROWS) visit(Here{}, e - FIRST_ROW, FIRST + (e - FIRST_ROW) * Here::IN_PAD);
  else if constexpr (Here::NUMBER + 1 < TOWERS * LAYERS) {
    visit_row<typename Here::Next, FIRST_ROW + ROWS, FIRST + Here::OUT * Here::IN_PAD + Here::OUT_PAD>(e, visit);
  }
}
