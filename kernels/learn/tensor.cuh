// tensor.cuh -- perceptrons by matrix units: weights, outputs and derivatives in bfloat16, sums in float32.
//
// A block has the weights of all layers and ROWS rows in its shared memory. Derivatives by a layer's outputs take the place of
// these: those of the last layer have one of their own, as its outputs stay in float32. The gradients of the weights stay in
// registers from the first row of a launch to the last. Constants: those of layers.cuh; ROWS, a multiple of 16.
#pragma once
#define APPROXIMATE 1
#include "learn/functions.cuh"
#include "learn/matrix_units.cuh"
#include "learn/layers.cuh"
#include "learn/neuron.cuh"

constexpr int TENSORS = 2 * TOWERS * LAYERS;  // weights and biases of each layer, as the network has them: (OUT, IN), (OUT)

enum class Part { WEIGHTS, BIASES, ENTRIES, RESULTS };
// What the layers before layer (tower, layer) take: numbers of weights and of biases, entries of one row that has
// observations first, and results of one row.
constexpr int taken(const Part what, const int tower, const int layer) {
  int sum = what == Part::ENTRIES ? padded(OBS) + SKEW : 0;
  for (int t = 0; t < TOWERS; ++t) {
    for (int l = 0; l < LAYERS; ++l) {
      if (t > tower || (t == tower && l >= layer)) return sum;
      const int out = padded(WIDTH[t][l + 1]);
      sum += what == Part::WEIGHTS ? out * (padded(WIDTH[t][l]) + SKEW)
           : what == Part::BIASES ? out
           : what == Part::ENTRIES ? out + SKEW
           : l == LAYERS - 1 ? out + 1 : 0;  // an odd number of words: rows in different banks
    }
  }
  return sum;
}

struct Network {
  alignas(16) bf16 weights[taken(Part::WEIGHTS, TOWERS, 0)];
  float biases[taken(Part::BIASES, TOWERS, 0)];
  alignas(16) bf16 entries[ROWS * taken(Part::ENTRIES, TOWERS, 0)];
  float results[ROWS * taken(Part::RESULTS, TOWERS, 0)];

  DEVICE Matrix<padded(OBS)> observations() { return {entries}; }
  template <int T, int L> DEVICE auto weights_of() { return Matrix<Layer<T, L>::IN_PAD>{weights + taken(Part::WEIGHTS, T, L)}; }
  template <int T, int L> DEVICE auto inputs_of() {
    if constexpr (L == 0) return observations();
    else return outputs_of<T, L - 1>();
  }
  // Outputs of the layer, or the derivatives by them.
  template <int T, int L> DEVICE auto outputs_of() { return Matrix<Layer<T, L>::OUT_PAD>{entries + ROWS * taken(Part::ENTRIES, T, L)}; }
  // The last layer's outputs of row m.
  template <int T> DEVICE float* results_of(int m) {
    return results + ROWS * taken(Part::RESULTS, T, LAYERS - 1) + m * (Layer<T, LAYERS - 1>::OUT_PAD + 1);
  }
  DEVICE float* parameters(int m) { return results_of<0>(m); }
  DEVICE float* value(int m) {
    if constexpr (TOWERS == 1) return parameters(m) + PARAMETERS;
    else return results_of<1>(m);
  }
};

// Numbers (n, k) and (n, k + 1) of a layer's weights, as they lie in the network's memory; zeros beside it.
template <class Here> DEVICE u32 two_weights(const float* weights, const int n, const int k) {
  float first = 0.0f, second = 0.0f;
  if (n < Here::OUT) {
    const float* const from = weights + n * Here::IN + k;
    if (k < Here::IN) first = from[0];
    if (k + 1 < Here::IN) second = from[1];
  }
  return pair(first, second);
}
template <int T = 0, int L = 0> DEVICE void load_layers(const Team team, Network& network, const float* const* tensors) {
  if constexpr (T < TOWERS) {
    typedef Layer<T, L> Here;
    constexpr int ACROSS = Here::IN_PAD / 2, PAIRS = Here::OUT_PAD * ACROSS, AT_ONCE = 8;
    const auto to = network.weights_of<T, L>();
    const float* const weights = tensors[2 * Here::NUMBER];
    const float* const biases = tensors[2 * Here::NUMBER + 1];
    for (int first = team.rank; first < PAIRS; first += AT_ONCE * TEAM) {  // no load waits for the store before it
      u32 kept[AT_ONCE];
      UNROLL for (int j = 0; j < AT_ONCE; ++j) {
        const int i = first + j * TEAM;
        if (i < PAIRS) kept[j] = two_weights<Here>(weights, i / ACROSS, 2 * (i % ACROSS));
      }
      UNROLL for (int j = 0; j < AT_ONCE; ++j) {
        const int i = first + j * TEAM;
        if (i < PAIRS) to.two(i / ACROSS, 2 * (i % ACROSS)) = kept[j];
      }
    }
    for (int n : team.each(Here::OUT_PAD)) network.biases[taken(Part::BIASES, T, L) + n] = n < Here::OUT ? biases[n] : 0.0f;
    load_layers<T + Here::LAST, Here::LAST ? 0 : L + 1>(team, network, tensors);
  }
}
// Loads the weights, and puts zeros where observations have no entries. Who reads them must sync first.
DEVICE void load_network(const Team team, Network& network, const float* const* tensors) {
  load_layers(team, network, tensors);
  if constexpr (OBS < padded(OBS)) {
    for (int m : team.each(ROWS)) {
      for (int d = OBS; d < padded(OBS); ++d) network.observations().row(m)[d] = 0.0f;
    }
  }
}

using policy::seen;

DEVICE float activate(float x) {
  if constexpr (RELU) return x < 0.0f ? 0.0f : x;  // keeps NaN
  else return hyperbolic_tangent(x);
}

// The activation's derivative, from its result.
DEVICE float slope_of(float y) {
  if constexpr (RELU) return y > 0.0f ? 1.0f : 0.0f;
  else return math::fma(-y, y, 1.0f);
}

// All layers, of rows whose observations all members can see.
template <int T = 0, int L = 0> DEVICE void forward(const Team team, Network& network) {
  if constexpr (T < TOWERS) {
    typedef Layer<T, L> Here;
    const float* const biases = network.biases + taken(Part::BIASES, T, L);
    product<ROWS, Here::OUT_PAD, Here::IN_PAD, true>(
        team, network.inputs_of<T, L>(), network.weights_of<T, L>(), [&](int m, int n, float c, float d) INLINED {
          c += biases[n];
          d += biases[n + 1];
          if constexpr (Here::LAST) { network.results_of<T>(m)[n] = c; network.results_of<T>(m)[n + 1] = d; }
          else network.outputs_of<T, L>().two(m, n) = pair(activate(c), activate(d));
        });
    team.sync();
    forward<T + Here::LAST, Here::LAST ? 0 : L + 1>(team, network);
  }
}

// The gradients of the layers from (T, L) on.
template <int T = 0, int L = 0> struct Gradient {
  typedef Layer<T, L> Here;
  Sums<Here::OUT_PAD, Here::IN_PAD> own;
  Gradient<T + Here::LAST, Here::LAST ? 0 : L + 1> rest;

  DEVICE void clear() { own.clear(); rest.clear(); }
  template <int TOWER, int LAYER> DEVICE auto& of() {
    if constexpr (TOWER == T && LAYER == L) return own;
    else return rest.template of<TOWER, LAYER>();
  }
  // Writes rows as layers.cuh has them.
  DEVICE void store(const Team team, float* gradients) const {
    float* const weights = gradients + before(GRADIENT, T, L);
    float* const biases = weights + Here::OUT * Here::IN_PAD;
    own.each(team, [&](int m, int n, float c, float d) INLINED {
      if (m < Here::OUT) { weights[m * Here::IN_PAD + n] = c; weights[m * Here::IN_PAD + n + 1] = d; }
    });
    own.each_column(team, [&](int m, float sum) INLINED { biases[m] = sum; });
    rest.store(team, gradients);
  }
};
template <> struct Gradient<TOWERS, 0> {
  DEVICE void clear() {}
  DEVICE void store(const Team, float*) const {}
};

// Adds to the gradients of layers L, L - 1, ..., 0 of tower T; the derivatives by the outputs of layer L stand in their place.
template <int T, int L> DEVICE void backward_from(const Team team, Network& network, Gradient<>& gradient) {
  typedef Layer<T, L> Here;
  const auto slopes = network.outputs_of<T, L>();
  const auto inputs = network.inputs_of<T, L>();
  gradient.of<T, L>().template add<ROWS>(team, slopes, inputs);
  if constexpr (L > 0) {
    team.sync();  // all have read the inputs
    product<ROWS, Here::IN_PAD, Here::OUT_PAD, false>(
        team, slopes, network.weights_of<T, L>(), [&](int m, int n, float c, float d) INLINED {
          u32& both = inputs.two(m, n);
          both = pair(c * slope_of(first_of(both)), d * slope_of(second_of(both)));
        });
    team.sync();
    backward_from<T, L - 1>(team, network, gradient);
  }
}
DEVICE void backward(const Team team, Network& network, Gradient<>& gradient) {
  backward_from<0, LAYERS - 1>(team, network, gradient);
  if constexpr (TOWERS == 2) backward_from<1, LAYERS - 1>(team, network, gradient);
}
