// group_tower.cuh -- Forward and backward passes of a tower by one warpgroup, 64 rows at a time, with wgmma.
//
// Rows stay in registers from layer to layer and back. Operands of weight gradients are also in shared memory. Hidden layers have
// 33 to 64 outputs, and there are fewer than 64 inputs, as a column of ones follows them. Weight gradients overlap the next tile.
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "learn/hopper/wgmma.cuh"
#include "learn/mma/tile.cuh"

static_assert(ROWS == GROUP_ROWS, "a warp group has 64 rows");

// Row length of the k-th matrix of rows: the inputs of a tower's layers, then the gradients w.r.t. their outputs.
constexpr int entries(const int tower, const int k) {
  return k == 0 ? wide(OBS + 1) : wide(WIDTH[tower][k < LAYERS ? k : k - LAYERS + 1]);
}
// Total row length of the matrices before the k-th, without the observations.
constexpr int entries_before(const int tower, const int k) {
  int sum = 0;  // mutant(swap = 0;): a CPU reads panels anywhere
  for (int i = 1; i < k; ++i) sum += entries(tower, i);
  return sum;
}
constexpr int weights_before(const int tower, const int layer) {
  int sum = 0;  // mutant(swap = 0;): a CPU reads panels anywhere
  for (int l = 0; l < layer; ++l) sum += entries(tower, l) * entries(tower, LAYERS + l);
  return sum;
}

template <int T> struct Tower {
  static constexpr int USED = WIDTH[T][LAYERS], RESULTS = wide(USED) + 1;  // an odd number of words puts rows into different banks
  alignas(1024) bf16 weights[weights_before(T, LAYERS)];
  alignas(1024) bf16 observations[2][ROWS * entries(T, 0)];  // double buffer of tiles, with a column of ones
  alignas(1024) bf16 rows[ROWS * entries_before(T, 2 * LAYERS)];
  alignas(1024) bf16 ones[16 * 64];  // after `rows`, as wgmma finds columns beside an operand at higher addresses
  alignas(16) float biases[LAYERS][64];
  float results[ROWS * RESULTS];

  // Inputs of layer L for the tile in buffer `turn`, and gradients w.r.t. the layer's outputs.
  template <int L> DEVICE SwizzledTile<entries(T, L)> inputs_of([[maybe_unused]] const int turn) {
    if constexpr (L == 0) return {observations[turn]};
    else return {rows + ROWS * entries_before(T, L)};
  }
  template <int L> DEVICE SwizzledTile<entries(T, LAYERS + L)> gradients_of() {
    return {rows + ROWS * entries_before(T, LAYERS + L)};
  }
  template <int L> DEVICE SwizzledTile<entries(T, L)> weights_of() { return {weights + weights_before(T, L)}; }
  DEVICE float* results_of(int m) { return results + m * RESULTS; }
};
template <int T, int L = 0> DEVICE void load_layers(const Team team, Tower<T>& tower, const float* const* tensors) {
  if constexpr (L < LAYERS) {
    typedef Layer<T, L> Here;
    LayerLoad<Here, TEAM, entries(T, L), entries(T, LAYERS + L), 64, 16> load(
        tensors[2 * Here::NUMBER], tensors[2 * Here::NUMBER + 1], team.rank);
    load_layers<T, L + 1>(team, tower, tensors);
    load.store(tower.template weights_of<L>(), tower.biases[L]);
  }
}
// Load the weights, and the constant columns of rows. Call fence_async_proxy and sync before reading them.
template <int T> DEVICE void load_tower(const Team team, Tower<T>& tower, const float* const* tensors) {
  load_layers<T>(team, tower, tensors);
  for (int m : team.each(ROWS)) {
    for (int d = OBS; d < entries(T, 0); ++d) {
      for (int turn = 0; turn < 2; ++turn) tower.template inputs_of<0>(turn).put(m, d, d == OBS ? 1.0f : 0.0f);
    }
    for (int k = 0; k < entries(T, 2 * LAYERS - 1); ++k) tower.template gradients_of<LAYERS - 1>().put(m, k, 0.0f);
  }
  for (int i : team.each(16 * 64)) tower.ones[i] = 1.0f;
}

// Compute layer L and those after it for the tile in buffer `turn`. meanwhile(layer) runs during the product of each.
template <int T, int L, int K, class Meanwhile>
DEVICE void forward(const Team team, Tower<T>& tower, const Fragment<K>& inputs, const int turn, Meanwhile meanwhile) {
  typedef Layer<T, L> Here;
  Accumulator<entries(T, LAYERS + L)> sums;
  if constexpr (L > 0) sums.fill(team, tower.biases[L]);
  sums.template multiply<false, (L > 0)>(inputs, tower.template weights_of<L>());
  meanwhile(Here{});
  wgmma_wait();
  // Biases of the first layer are added after the product. If an accumulator were written while the previous tile's weight
  // gradients are in flight, the compiler would serialize all wgmma.
  if constexpr (L == 0) sums.add(team, tower.biases[L]);
  if constexpr (Here::LAST) {
    sums.each(team, [&](int m, int n, float c, float d) INLINED {
      if (n < Here::OUT) tower.results_of(m)[n] = c;
      if (n + 1 < Here::OUT) tower.results_of(m)[n + 1] = d;
    });
  } else {
    Fragment<entries(T, L + 1)> outputs;
    transform_pairs(outputs, sums, [](float c, float d, u32) INLINED { return pair(activation<RELU>(c), activation<RELU>(d)); });
    // mutant(dropped sync): a CPU finishes immediately
    if constexpr (L == 0) team.sync();  // all warps have waited for the previous tile's gradients, whose operands are overwritten
    outputs.store(team, tower.template inputs_of<L + 1>(turn));
    forward<T, L + 1>(team, tower, outputs, turn, meanwhile);
  }
}

// Weight gradients of the layers of tower T from L on. That of the last layer is transposed. A column of ones beside the inputs
// yields the bias gradients. Those of the last layer are added up in registers.
template <int T, int L = 0> struct Gradient {
  typedef Layer<T, L> Here;
  static constexpr bool FIRST = L == 0, LAST = L == LAYERS - 1;
  static constexpr int ONES = FIRST ? Here::IN : entries(T, L);  // the first column of ones
  Accumulator<LAST ? entries(T, LAYERS + L) : FIRST ? entries(T, L) : entries(T, L) + 8> own;
  ColumnSums<LAST ? entries(T, LAYERS + L) : 0> biases;
  Gradient<T, L + 1> rest;

  DEVICE void clear() { own.clear(); biases.clear(); rest.clear(); }
  template <int LAYER> DEVICE auto& of() {
    if constexpr (LAYER == L) return *this;
    else return rest.template of<LAYER>();
  }
  // Start adding the gradient of the rows. out_grad: gradients w.r.t. the layer's outputs.
  template <int K> DEVICE void add(Tower<T>& tower, const Fragment<K>& out_grad, const int turn) {
    const auto inputs = tower.template inputs_of<L>(turn);
    const auto rows = tower.template gradients_of<L>();
    wgmma_fence();
    if constexpr (LAST) own.add_over_rows(inputs, rows);
    else if constexpr (FIRST) own.add_over_rows(rows, inputs);
    else own.add_over_rows(rows, inputs, tower.ones);
    wgmma_commit();
    if constexpr (LAST) biases.add(out_grad);
  }
  // Store rows in the layout of layers.cuh.
  DEVICE void store(const Team team, Tower<T>& tower, float* gradients) const {
    float* const weights = gradients + before(GRADIENT, T, L);
    float* const to_biases = weights + Here::OUT * Here::IN_PAD;
    const auto put = [&](int out, int in, float x) INLINED {
      if (out >= Here::OUT) return;
      if (in < Here::IN) weights[out * Here::IN_PAD + in] = x;
      else if (!LAST && in == ONES) to_biases[out] = x;
    };
    own.each(team, [&](int m, int n, float c, float d) INLINED {
      if (LAST) { put(n, m, c); put(n + 1, m, d); }
      else if (m < Here::OUT && n + 1 < Here::IN) store_two(weights + m * Here::IN_PAD + n, c, d);
      else { put(m, n, c); put(m, n + 1, d); }
    });
    if constexpr (LAST) {
      biases.each(team, tower.results, [&](int n, float sum) INLINED { if (n < Here::OUT) to_biases[n] = sum; });
    }
    rest.store(team, tower, gradients);
  }
};
template <int T> struct Gradient<T, LAYERS> {
  DEVICE void clear() {}
  DEVICE void store(const Team, Tower<T>&, float*) const {}
};

// Return the derivatives of the activation from two results.
DEVICE u32 activation_gradients(const u32 both) {
  if constexpr (RELU) return pair(activation_gradient<RELU>(first_of(both)), activation_gradient<RELU>(second_of(both)));
  else return one_minus_square(both);
}
// Start adding to the gradients of layers L, L - 1, ..., 0. The product that the previous layer needs is issued first.
template <int T, int L, int K>
DEVICE void backward(const Team team, Tower<T>& tower, const Fragment<K>& out_grad, Gradient<T>& gradient, const int turn) {
  if constexpr (L > 0) {
    Accumulator<entries(T, L)> sums;
    sums.template multiply<true, false>(out_grad, tower.template weights_of<L>());
    gradient.template of<L>().add(tower, out_grad, turn);
    Fragment<entries(T, L)> before;
    before.load(team, tower.template inputs_of<L>(turn));
    // Wait for the activation gradient, not for the weight gradient.
    wgmma_wait<1>();
    transform_pairs(before, sums, [](float c, float d, u32 both) INLINED { return times(pair(c, d), activation_gradients(both)); });
    before.store(team, tower.template gradients_of<L - 1>());
    fence_async_proxy();
    team.sync();  // activation gradients are written before wgmma reads them
    backward<T, L - 1>(team, tower, before, gradient, turn);
  } else {
    gradient.template of<0>().add(tower, out_grad, turn);
  }
}

// Store the gradient w.r.t. the parameters, or the value, of row m where `backward` reads it. It is 0 if there is no row.
template <int T, bool VALUE>
DEVICE void differentiate_half(const Coefficients& of, Tower<T>& tower, const int m, const bool there, const Transition& row,
                               const Moments moments, float* metric) {
  constexpr int FIRST = VALUE ? Tower<T>::USED - 1 : 0, END = VALUE || T < TOWERS - 1 ? Tower<T>::USED : Tower<T>::USED - 1;
  float* const results = tower.results_of(m);
  const bool counts = there && (VALUE ? row.valued : row.active);
  if (counts) {
    if constexpr (VALUE) differentiate_value(of, row, moments, results[FIRST], metric);
    else differentiate_policy(of, row, moments, results, metric);
  }
  for (int k = FIRST; k < END; ++k) tower.template gradients_of<LAYERS - 1>().put(m, k, counts ? results[k] : 0.0f);
}

// ---- tiles ----

// Rows of this tile and of the next, double-buffered, as arguments of `RowIndex`, or -1 if there is none.
struct TileRows {
  int row[2][ROWS];

  // Call visit(k, m): row m of a tile is the k-th that this thread looks up. The threads with less work in the loss do this.
  template <class Visit> static DEVICE void each(const Team team, Visit visit) {
    UNROLL for (int k = 0; k < own_count(ROWS); ++k) {
      const int m = TEAM - 1 - team.rank + k * TEAM;
      if (m < ROWS) visit(k, m);
    }
  }
};

// The threads of a warp prefetch the observations of the warp's own rows.
typedef EntriesAhead<WARP_LANES, WARP_ROWS> WarpEntries;

// Start adding a tile, whose observations are in `ahead`, to the gradient, and add its reported metrics. Prefetches the next tile's
// observations. next_row(m): row m of the tile after the next.
template <int T, class Next>
DEVICE void add_tile(const Learn& call, const Coefficients& of, const Moments& moments, const Team team, Tower<T>& tower,
                     TileRows& rows, const int turn, WarpEntries& ahead, Gradient<T>& gradient, float (&reported)[REPORTED],
                     Next next_row) {
  // The loss's halves are divided among threads: parameters of all rows, then values of all rows.
  constexpr int HALVES = TOWERS == 1 ? 2 : 1, OWN_HALVES = own_count(HALVES * ROWS);
  const auto each_half = [&](auto visit) INLINED {
    UNROLL for (int k = 0; k < OWN_HALVES; ++k) {
      const int i = team.rank + k * TEAM;
      if (i < HALVES * ROWS) visit(k, i % ROWS, TOWERS == 1 ? i >= ROWS : T == 1);
    }
  };
  // Store the prefetched observations.
  ahead.put(call, team, rows.row[turn], [&](int m, int d, float x) INLINED { tower.template inputs_of<0>(turn).put(m, d, x); });
  sync_warp();  // observations are written before other lanes read them
  Fragment<entries(T, 0)> inputs;
  inputs.load(team, tower.template inputs_of<0>(turn));
  // Forward pass. Meanwhile, prefetch the other inputs of the loss, the next tile's observations and the rows of the tile after it.
  Transition row[OWN_HALVES];
  bool there[OWN_HALVES];
  int next[own_count(ROWS)];
  forward<T, 0>(team, tower, inputs, turn, [&](auto layer) INLINED {
    constexpr int L = decltype(layer)::NUMBER % LAYERS;
    if constexpr (L == 0) {
      each_half([&](int k, int m, bool value) INLINED {
        const int place = rows.row[turn][m];
        there[k] = place >= 0;
        if (there[k]) row[k].load(call, RowIndex(call, place), !value, value);
      });
    } else if constexpr (L == 1) {
      ahead.load(call, team, rows.row[turn ^ 1]);
      TileRows::each(team, [&](int k, int m) INLINED { next[k] = next_row(m); });
    }
  });
  team.sync();  // results are written before they are read. mutant(dropped sync): a CPU finishes immediately
  // Differentiate the losses.
  each_half([&](int k, int m, bool value) INLINED {
    float metric[METRICS] = {};
    if constexpr (T == TOWERS - 1) {
      if (value) differentiate_half<T, true>(of, tower, m, there[k], row[k], moments, metric);
    }
    if constexpr (T == 0) {
      if (!value) differentiate_half<T, false>(of, tower, m, there[k], row[k], moments, metric);
    }
    UNROLL for (int j = 0; j < REPORTED; ++j) reported[j] += metric[j];
  });
  TileRows::each(team, [&](int k, int m) INLINED { rows.row[turn][m] = next[k]; });
  fence_async_proxy();
  team.sync();  // gradients and rows are written before wgmma and other threads read them
  Fragment<entries(T, 2 * LAYERS - 1)> out_grad;
  out_grad.load(team, tower.template gradients_of<LAYERS - 1>());
  backward<T, LAYERS - 1>(team, tower, out_grad, gradient, turn);
}

// Accumulators in the registers of one thread.
constexpr int sums_of(const int tower) {
  return entries(tower, 0) / 2 + 36 * (LAYERS - 2) + 3 * entries(tower, 2 * LAYERS - 1) / 4;
}
