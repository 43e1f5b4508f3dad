// tensor.cuh -- Forward and backward passes of a tower on tensor cores: bfloat16 operands, float32 accumulators.
//
// A block has the weights of a tower and ROWS rows (a multiple of 16) in shared memory. Activation gradients replace the outputs of
// their layer. The last layer's outputs stay in float32, in memory of their own. Weight gradients stay in registers for a launch.
#pragma once
#include "learn/mma/mma.cuh"
#include "learn/mma/tensor_layers.cuh"

enum class Part { WEIGHTS, BIASES, ENTRIES };
// Size of the layers of a tower before `layer`: number of weights, number of biases, or entries of one row, which begins with the
// observation.
constexpr int taken(const Part what, const int tower, const int layer) {
  int sum = what == Part::ENTRIES ? padded(OBS) + SKEW : 0;
  for (int l = 0; l < layer; ++l) {
    const int out = padded(WIDTH[tower][l + 1]);
    sum += what == Part::WEIGHTS ? out * (padded(WIDTH[tower][l]) + SKEW) : what == Part::BIASES ? out : out + SKEW;
  }
  return sum;
}

// Weights of tower T of the network.
template <int T> struct TowerWeights {
  alignas(16) bf16 weights[taken(Part::WEIGHTS, T, LAYERS)];
  float biases[taken(Part::BIASES, T, LAYERS)];

  template <int L> DEVICE auto weights_of() { return Matrix<Layer<T, L>::IN_PAD>{weights + taken(Part::WEIGHTS, T, L)}; }
};
// Rows of a tower. `Base` has its weights, or is empty.
template <int T, class Base> struct TowerRows : Base {
  // equal(constant): memory banks, on a GPU only
  static constexpr int RESULTS = padded(WIDTH[T][LAYERS]) + 1;  // of one row. An odd number of words puts rows into different banks
  alignas(16) bf16 entries[ROWS * taken(Part::ENTRIES, T, LAYERS)];
  float results[ROWS * RESULTS];

  DEVICE Matrix<padded(OBS)> observations() { return {entries}; }
  template <int L> DEVICE auto inputs_of() {
    if constexpr (L == 0) return observations();
    else return outputs_of<L - 1>();
  }
  // Outputs of a layer, or the gradients w.r.t. them.
  template <int L> DEVICE auto outputs_of() { return Matrix<Layer<T, L>::OUT_PAD>{entries + ROWS * taken(Part::ENTRIES, T, L)}; }
  // Outputs of the last layer in row m: parameters of the distribution, the value, or both.
  DEVICE float* results_of(int m) { return results + m * RESULTS; }
};
template <int T> using Tower = TowerRows<T, TowerWeights<T>>;

template <int T, int L = 0> DEVICE void load_layers(const Team team, TowerWeights<T>& tower, const float* const* tensors) {
  if constexpr (L < LAYERS) {
    typedef Layer<T, L> Here;
    LayerLoad<Here, TEAM> load(tensors[2 * Here::NUMBER], tensors[2 * Here::NUMBER + 1], team.rank);
    load_layers<T, L + 1>(team, tower, tensors);
    load.store(tower.template weights_of<L>(), tower.biases + taken(Part::BIASES, T, L));
  }
}
// Clear the padding of observations.
template <int T> DEVICE void clear_beside_observations(const Team team, Tower<T>& tower) {
  if constexpr (OBS < padded(OBS)) {
    for (int m : team.each(ROWS)) {
      for (int d = OBS; d < padded(OBS); ++d) tower.observations().row(m)[d] = 0.0f;
    }
  }
}
// Load the weights, and clear the padding of observations. Sync before reading them.
template <int T> DEVICE void load_tower(const Team team, Tower<T>& tower, const float* const* tensors) {
  load_layers<T>(team, tower, tensors);
  clear_beside_observations(team, tower);
}

// Compute all layers, for rows whose observations are visible to all threads.
template <int T, int L = 0> DEVICE void forward(const Team team, Tower<T>& tower) {
  if constexpr (L < LAYERS) {
    typedef Layer<T, L> Here;
    const float* const biases = tower.biases + taken(Part::BIASES, T, L);
    product<ROWS, Here::OUT_PAD, Here::IN_PAD, true>(
        team, tower.template inputs_of<L>(), tower.template weights_of<L>(), [&](int m, int n, float c, float d) INLINED {
          c += biases[n];
          d += biases[n + 1];
          if constexpr (Here::LAST) { tower.results_of(m)[n] = c; tower.results_of(m)[n + 1] = d; }
          else tower.template outputs_of<L>().two(m, n) = pair(activation<RELU>(c), activation<RELU>(d));
        });
    team.sync();  // the layer's outputs are written before the next layer reads them
    forward<T, L + 1>(team, tower);
  }
}

// Gradients of the layers of tower T, from L on.
template <int T, int L = 0> struct Gradient {
  typedef Layer<T, L> Here;
  LinearAccumulator<Here::OUT_PAD, Here::IN_PAD> own;
  Gradient<T, L + 1> rest;

  DEVICE void clear() { own.clear(); rest.clear(); }
  template <int LAYER> DEVICE auto& of() {
    if constexpr (LAYER == L) return own;
    else return rest.template of<LAYER>();
  }
  // Store rows in the layout of layers.cuh.
  DEVICE void store(const Team team, float* gradients) const {
    float* const weights = gradients + before(GRADIENT, T, L);
    float* const biases = weights + Here::OUT * Here::IN_PAD;
    own.each(team, [&](int m, int n, float c, float d) INLINED {
      if (m < Here::OUT) store_two(weights + m * Here::IN_PAD + n, c, d);  // two stores would each fill half of a sector
    });
    own.each_column(team, [&](int m, float sum) INLINED { biases[m] = sum; });
    rest.store(team, gradients);
  }
};
template <int T> struct Gradient<T, LAYERS> {
  DEVICE void clear() {}
  DEVICE void store(const Team, float*) const {}
};

// Add to the gradients of layers L, L - 1, ..., 0. The gradients w.r.t. the outputs of layer L have replaced these outputs.
template <int T, int L = LAYERS - 1> DEVICE void backward(const Team team, Tower<T>& tower, Gradient<T>& gradient) {
  typedef Layer<T, L> Here;
  const auto slopes = tower.template outputs_of<L>();
  const auto inputs = tower.template inputs_of<L>();
  // Weight and bias gradients.
  gradient.template of<L>().template add<ROWS>(team, slopes, inputs);
  if constexpr (L > 0) {
    team.sync();  // all threads have read the inputs, which the next product overwrites
    // Activation gradient of the previous layer.
    product<ROWS, Here::IN_PAD, Here::OUT_PAD, false>(
        team, slopes, tower.template weights_of<L>(), [&](int m, int n, float c, float d) INLINED {
          Word& both = inputs.two(m, n);
          both = pair(c * activation_gradient<RELU>(first_of(both)), d * activation_gradient<RELU>(second_of(both)));
        });
    team.sync();  // activation gradients are written before the previous layer reads them
    backward<T, L - 1>(team, tower, gradient);
  }
}
