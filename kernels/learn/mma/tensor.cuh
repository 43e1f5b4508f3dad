// tensor.cuh -- Forward and backward passes of a tower on tensor cores: bfloat16 operands, float32 accumulators.
//
// A block has the weights of a tower and ROWS rows (a multiple of 16) in shared memory. Activation gradients replace the outputs of
// their layer. The last layer's outputs stay in float32, in memory of their own. Weight gradients stay in registers for a launch.
// With LAYER_NORM, products of hidden layers have memory of their own, where the normalized rows replace them.
#pragma once
#include "learn/mma/mma.cuh"
#include "learn/mma/norm.cuh"
#include "learn/mma/tensor_layers.cuh"

constexpr int ALL_THREADS = TEAM * BLOCKS_PER_TILE;  // that share a tile

#ifndef OBS_ENTRIES
#define OBS_ENTRIES (padded(OBS) + SKEW)  // entries of an observation in a row of a tower
#endif

enum class Part { WEIGHTS, BIASES, ENTRIES };
// Size of the layers of a tower before `layer`: number of weights, number of biases, or entries of one row, which begins with the
// observation.
constexpr int taken(const Part what, const int tower, const int layer) {
  int sum = what == Part::ENTRIES ? OBS_ENTRIES : 0;
  for (int l = 0; l < layer; ++l) {
    const int out = padded(WIDTH[tower][l + 1]);
    sum += what == Part::WEIGHTS ? out * (padded(WIDTH[tower][l]) + SKEW) : what == Part::BIASES ? out : out + SKEW;
  }
  return sum;
}

// Gains and biases of the normalizations of tower T, at the offsets of the layers' biases.
template <int T, bool = LAYER_NORM> struct NormWeights {};
template <int T> struct NormWeights<T, true> {
  float gains[taken(Part::BIASES, T, LAYERS - 1)], norm_biases[taken(Part::BIASES, T, LAYERS - 1)];
};
// Weights of tower T of the network.
template <int T> struct TowerWeights : NormWeights<T> {
  alignas(16) bf16 weights[taken(Part::WEIGHTS, T, LAYERS)];
  float biases[taken(Part::BIASES, T, LAYERS)];

  template <int L> DEVICE auto weights_of() { return Matrix<Layer<T, L>::IN_PAD>{weights + taken(Part::WEIGHTS, T, L)}; }
};
// Rows of the normalizations of tower T.
template <int T, bool = LAYER_NORM> struct NormRows {};
template <int T> struct NormRows<T, true> {
  static constexpr int ENTRIES = taken(Part::ENTRIES, T, LAYERS - 1) - taken(Part::ENTRIES, T, 0);  // of one row
  alignas(16) bf16 products[ROWS * ENTRIES];
  float scales[ROWS * (LAYERS > 1 ? LAYERS - 1 : 1)];  // reciprocal standard deviations

  // Products of a hidden layer, later its normalized rows.
  template <int L> DEVICE auto products_of() {
    return Matrix<Layer<T, L>::OUT_PAD>{products + ROWS * (taken(Part::ENTRIES, T, L) - taken(Part::ENTRIES, T, 0))};
  }
};
// Rows of a tower. `Base` has its weights, or is empty.
template <int T, class Base> struct TowerRows : Base, NormRows<T> {
  // mutant(constant): memory banks, on a GPU only
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

// Gains and biases of a layer's normalization, padded with zeros. A thread prefetches its own.
template <int T, int L, bool = Layer<T, L>::NORMALIZED> struct NormLoad {
  DEVICE NormLoad(const float* const*, const Team) {}
  DEVICE void store(const Team, TowerWeights<T>&) const {}
};
template <int T, int L> struct NormLoad<T, L, true> {
  typedef Layer<T, L> Here;
  float gain[own_count(Here::OUT_PAD)], bias[own_count(Here::OUT_PAD)];

  DEVICE NormLoad(const float* const* tensors, const Team team) {
    FOR_OWN(team, k, n, Here::OUT_PAD) {
      gain[k] = n < Here::OUT ? tensors[2 * Here::NUMBER + 2][n] : 0.0f;
      bias[k] = n < Here::OUT ? tensors[2 * Here::NUMBER + 3][n] : 0.0f;
    }
  }
  DEVICE void store(const Team team, TowerWeights<T>& tower) const {
    FOR_OWN(team, k, n, Here::OUT_PAD) {
      tower.gains[taken(Part::BIASES, T, L) + n] = gain[k];
      tower.norm_biases[taken(Part::BIASES, T, L) + n] = bias[k];
    }
  }
};
template <int T, int L = 0> DEVICE void load_layers(const Team team, TowerWeights<T>& tower, const float* const* tensors) {
  if constexpr (L < LAYERS) {
    typedef Layer<T, L> Here;
    LayerLoad<Here, TEAM, Here::IN_PAD, Here::OUT_PAD, Here::OUT_PAD, LAYER_NORM ? 32 : 8> load(
        tensors[2 * Here::NUMBER], tensors[2 * Here::NUMBER + 1], team.rank);
    const NormLoad<T, L> norm(tensors, team);
    load_layers<T, L + 1>(team, tower, tensors);
    norm.store(team, tower);
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

// Call visit(row m) for all rows, by ROW_LANES lanes each.
template <class Visit> DEVICE void each_norm_row(const Team team, Visit visit) {
  for (int m = team.rank / ROW_LANES; m < ROWS; m += TEAM / ROW_LANES) visit(m);  // all lanes of a warp have a row, or none has
}
// Normalize the products of layer L, and apply gains, biases and activation.
template <int T, int L> DEVICE void normalize_rows(const Team team, Tower<T>& tower) {
  typedef Layer<T, L> Here;
  const auto products = tower.template products_of<L>();
  const auto outputs = tower.template outputs_of<L>();
  const float* const gains = tower.gains + taken(Part::BIASES, T, L);
  const float* const biases = tower.norm_biases + taken(Part::BIASES, T, L);
  each_norm_row(team, [&](int m) INLINED {
    NormRow<Here::OUT, Here::OUT_PAD, ROW_LANES> row;
    row.each(team.rank, [&](int, int n, float(&two)[2]) INLINED {
      two[0] = first_of(products.two(m, n));
      two[1] = second_of(products.two(m, n));
    });
    tower.scales[L * ROWS + m] = row.normalize(team.rank);
    row.each(team.rank, [&](int, int n, const float(&two)[2]) INLINED {
      products.two(m, n) = pair(two[0], two[1]);
      outputs.two(m, n) = pair(activation<RELU>(math::fma(two[0], gains[n], biases[n])),
                               activation<RELU>(math::fma(two[1], gains[n + 1], biases[n + 1])));
    });
  });
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
          else if constexpr (Here::NORMALIZED) tower.template products_of<L>().two(m, n) = pair(c, d);
          else tower.template outputs_of<L>().two(m, n) = pair(activation<RELU>(c), activation<RELU>(d));
        });
    team.sync();  // the layer's outputs are written before the next layer reads them
    if constexpr (Here::NORMALIZED) {
      normalize_rows<T, L>(team, tower);
      team.sync();  // normalized rows are written before the next layer reads them
    }
    forward<T, L + 1>(team, tower);
  }
}

// Gradients w.r.t. gains and biases of the normalization of layer L. Each thread has pairs of columns. `adding`: the team, with
// ranks among ALL_THREADS.
template <int T, int L, bool = Layer<T, L>::NORMALIZED> struct NormGradient {
  DEVICE void clear() {}
  DEVICE void store(const Team, float*) const {}
};
template <int T, int L> struct NormGradient<T, L, true> {
  typedef Layer<T, L> Here;
  static constexpr int PAIRS = Here::OUT_PAD / 2, OWN = (PAIRS + ALL_THREADS - 1) / ALL_THREADS;
  float gains[OWN][2], biases[OWN][2];

  DEVICE void clear() {
    UNROLL for (int k = 0; k < OWN; ++k) gains[k][0] = gains[k][1] = biases[k][0] = biases[k][1] = 0.0f;
  }
  // Call visit(k, i): pair i is the thread's k-th one.
  template <class Visit> DEVICE void each(const Team adding, Visit visit) const {
    UNROLL for (int k = 0; k < OWN; ++k) {
      const int i = adding.rank + k * ALL_THREADS;
      if (i < PAIRS) visit(k, i);
    }
  }
  // Add the sums over rows of `out_grad`, and of their products with normalized rows.
  DEVICE void add(const Team adding, const Matrix<Here::OUT_PAD> out_grad, const Matrix<Here::OUT_PAD> rows) {
    each(adding, [&](int k, int i) INLINED {
      UNROLL_TIMES(8) for (int m = 0; m < ROWS; ++m) {
        const u32 grad = out_grad.two(m, 2 * i), row = rows.two(m, 2 * i);
        gains[k][0] = math::fma(first_of(grad), first_of(row), gains[k][0]);
        gains[k][1] = math::fma(second_of(grad), second_of(row), gains[k][1]);
        biases[k][0] += first_of(grad);
        biases[k][1] += second_of(grad);
      }
    });
  }
  // Store them behind the layer's own gradient, in the layout of a layer with one input.
  DEVICE void store(const Team adding, float* gradients) const {
    float* const to = gradients + before(GRADIENT, T, L) + Here::OUT * Here::IN_PAD + Here::OUT_PAD;
    each(adding, [&](int k, int i) INLINED {
      UNROLL for (int h = 0; h < 2; ++h) {
        if (2 * i + h < Here::OUT) to[(2 * i + h) * padded(1)] = gains[k][h];
        to[Here::OUT * padded(1) + 2 * i + h] = biases[k][h];
      }
    });
  }
};
// Gradients of the layers of tower T, from L on.
template <int T, int L = 0> struct Gradient : NormGradient<T, L> {
  typedef Layer<T, L> Here;
  typedef NormGradient<T, L> Norm;
  LinearAccumulator<Here::OUT_PAD, Here::IN_PAD, BLOCKS_PER_TILE> own;
  Gradient<T, L + 1> rest;

  DEVICE void clear() { Norm::clear(); own.clear(); rest.clear(); }
  template <int LAYER> DEVICE auto& at() {
    if constexpr (LAYER == L) return *this;
    else return rest.template at<LAYER>();
  }
  // Store rows in the layout of layers.cuh.
  DEVICE void store(const Team adding, float* gradients) const {
    float* const weights = gradients + before(GRADIENT, T, L);
    float* const biases = weights + Here::OUT * Here::IN_PAD;
    own.each(adding, [&](int m, int n, float c, float d) INLINED {
      if (m < Here::OUT) store_two(weights + m * Here::IN_PAD + n, c, d);  // two stores would each fill half of a sector
    });
    own.each_column(adding, [&](int m, float sum) INLINED { biases[m] = sum; });
    Norm::store(adding, gradients);
    rest.store(adding, gradients);
  }
};
template <int T> struct Gradient<T, LAYERS> {
  DEVICE void clear() {}
  DEVICE void store(const Team, float*) const {}
};

// Backward pass of layer L's LayerNorm: replace gradients w.r.t. its outputs by those w.r.t. its inputs. Sync before and after.
template <int T, int L>
DEVICE void differentiate_norm(const Team team, const Team adding, Tower<T>& tower, NormGradient<T, L>& gradient) {
  typedef Layer<T, L> Here;
  const auto out_grad = tower.template outputs_of<L>();
  const auto rows = tower.template products_of<L>();
  const float* const gains = tower.gains + taken(Part::BIASES, T, L);
  gradient.add(adding, out_grad, rows);
  team.sync();  // gradients are read before they are overwritten
  each_norm_row(team, [&](int m) INLINED {
    // Means of the gradient w.r.t. the normalized row, and of its product with that row.
    NormRow<Here::OUT, Here::OUT_PAD, ROW_LANES> row_grad;
    const float mean = row_grad.sum(team.rank, [&](int n, float(&two)[2]) INLINED {
      const u32 grad = out_grad.two(m, n);
      two[0] = first_of(grad) * gains[n];
      two[1] = second_of(grad) * gains[n + 1];
      return two[0] + two[1];
    }) * (1.0f / Here::OUT);
    const float with = row_grad.sum(team.rank, [&](int n, const float(&two)[2]) INLINED {
      const u32 row = rows.two(m, n);
      return math::fma(two[0], first_of(row), two[1] * second_of(row));
    }) * (1.0f / Here::OUT);
    const float scale = tower.scales[L * ROWS + m];
    row_grad.each(team.rank, [&](int, int n, const float(&two)[2]) INLINED {
      const u32 row = rows.two(m, n);
      const float c = scale * (two[0] - mean - first_of(row) * with), d = scale * (two[1] - mean - second_of(row) * with);
      out_grad.two(m, n) = pair(n < Here::OUT ? c : 0.0f, n + 1 < Here::OUT ? d : 0.0f);  // padding stays 0
    });
  });
}

// Add to the gradients of layers L, L - 1, ..., 0. The gradients w.r.t. the outputs of layer L have replaced these outputs.
template <int T, int L = LAYERS - 1>
DEVICE void backward(const Team team, const Team adding, Tower<T>& tower, Gradient<T>& gradient) {
  typedef Layer<T, L> Here;
  const auto out_grad = tower.template outputs_of<L>();
  const auto inputs = tower.template inputs_of<L>();
  // Weight and bias gradients.
  gradient.template at<L>().own.template add<ROWS>(adding, out_grad, inputs);
  if constexpr (L > 0) {
    team.sync();  // all threads have read the inputs, which the next product overwrites
    // Activation gradient of the previous layer.
    product<ROWS, Here::IN_PAD, Here::OUT_PAD, false>(
        team, out_grad, tower.template weights_of<L>(), [&](int m, int n, float c, float d) INLINED {
          Word& both = inputs.two(m, n);
          both = pair(c * activation_gradient<RELU>(first_of(both)), d * activation_gradient<RELU>(second_of(both)));
        });
    team.sync();  // activation gradients are written before the previous layer reads them
    if constexpr (Layer<T, L - 1>::NORMALIZED) {
      differentiate_norm<T, L - 1>(team, adding, tower, gradient.template at<L - 1>());
      team.sync();  // gradients w.r.t. products are written before the previous layer reads them
    }
    backward<T, L - 1>(team, adding, tower, gradient);
  }
}
