// perceptron.cuh -- Forward pass of a perceptron for a few rows, by the threads of one warp set (play.cuh), with weights in shared
// memory. It has the bits of learn/exact/network.cuh: each output is one chain of fused multiply-adds in ascending order, which
// begins with the bias.
//
// A Network is generated. It has OBS, PARAMETERS, TOWERS, LAYERS (linear ones), RELU, width(tower, layer) and outputs(tower,
// layer), AGENTS (rows of one environment), and PACKED (size of the packed weights for forward passes, as in layers.cuh). With
// hidden state it also has STATE (numbers of an agent's state, otherwise 0), SIZE (units of the recurrent core), HIDDEN (layers
// before the core), GATED (linear layers of the core, whose outputs are three gates of each unit), gated(layer), GRU (otherwise
// MinGRU).
#pragma once

namespace policy {

constexpr int PAD = 16;          // rows of packed weights begin at multiples of it
constexpr int MOST_CHAINS = 32;  // accumulators of one thread, in registers

constexpr int padded(int n) { return (n + PAD - 1) / PAD * PAD; }
constexpr int divided_up(int n, int by) { return (n + by - 1) / by; }
constexpr int at_most(int n, int most) { return n < most ? n : most; }
constexpr int at_least(int n, int least) { return n > least ? n : least; }

// Floats from one row of a tile to the next: an odd number of 16-byte chunks, so that eight rows are in different banks.
constexpr int stride(int n) { return (divided_up(n, 4) | 1) * 4; }

template <class Network, int T, int L> struct Layer {
  static constexpr int IN = Network::width(T, L), OUT = Network::outputs(T, L), OUT_PAD = padded(OUT);
  static constexpr int NUMBERS = (IN + 1) * OUT_PAD;  // weights, transposed: (IN, padded OUT), then biases
  static constexpr bool LAST = L == Network::LAYERS - 1, ACTIVATED = !LAST && !Network::gated(L);
};

// Offset of a layer's weights, in the packed weights and in `Weights`.
template <class Network, int T, int L> constexpr int weights_before() {
  if constexpr (T == 0 && L == 0) {
    return 0;
  } else {
    constexpr int OF = L == 0 ? T - 1 : T, BEFORE = L == 0 ? Network::LAYERS - 1 : L - 1;
    return weights_before<Network, OF, BEFORE>() + Layer<Network, OF, BEFORE>::NUMBERS;
  }
}

// A network's weights in global memory.
template <class Network> struct Source {
  const float* packed;  // packed weights (learn/update.cu)
  const float* center;  // (OBS): means for normalizing observations, or null
  const float* scale;   // (OBS): reciprocal deviations
};

// The same in shared memory.
template <class Network> struct Weights {
  static constexpr int NUMBERS = weights_before<Network, Network::TOWERS, 0>();
  static_assert(NUMBERS == Network::PACKED, "the host packs weights in another layout");
  alignas(16) float layers[NUMBERS];
  float center[Network::OBS], scale[Network::OBS];
};

// Copy COUNT numbers, a multiple of four, by all threads of a block. Each thread has several loads in flight.
template <int COUNT, int THREADS> DEVICE void copy_numbers(float* to, const float* from, const int thread) {
  constexpr int AT_ONCE = 8;
  for (int first = thread; first < COUNT / 4; first += AT_ONCE * THREADS) {
    Pack<4> loaded[AT_ONCE];
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      if (first + k * THREADS < COUNT / 4) loaded[k] = ((const Pack<4>*)from)[first + k * THREADS];
    }
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      if (first + k * THREADS < COUNT / 4) ((Pack<4>*)to)[first + k * THREADS] = loaded[k];
    }
  }
}
// A CPU reads weights through its cache.
template <class Network> struct NoWeights {};
template <class Network> using SharedWeights = typename Choose<WEIGHTS_IN_SHARED, Weights<Network>, NoWeights<Network>>::type;

template <int THREADS, class Network>
DEVICE void load_network([[maybe_unused]] SharedWeights<Network>& shared, const Source<Network>& source, const int thread) {
  if constexpr (WEIGHTS_IN_SHARED) {
    copy_numbers<Weights<Network>::NUMBERS, THREADS>(shared.layers, source.packed, thread);
    if (source.center != nullptr) {
      for (int d = thread; d < Network::OBS; d += THREADS) {
        shared.center[d] = source.center[d];
        shared.scale[d] = source.scale[d];
      }
    }
  }
}
template <class Network>
DEVICE float normalize_entry([[maybe_unused]] const SharedWeights<Network>& shared, const Source<Network>& source, const float x,
                             const int d) {
  if constexpr (WEIGHTS_IN_SHARED) return source.center == nullptr ? x : normalize_entry(x, shared.center, shared.scale, d);
  else return normalize_entry(x, source.center, source.scale, d);
}

// Working memory of a warp set for the rows of its environments: observations as the network sees them, and outputs of layers.
template <class Network> struct Tile {
  static constexpr int LAYERS = Network::LAYERS, TOWERS = Network::TOWERS, ROWS = ENVS_PER_BLOCK * Network::AGENTS;
  static constexpr int widest(const int from) {
    int most = 0;
    for (int t = 0; t < TOWERS; ++t) {
      for (int l = from; l < LAYERS; l += 2) most = at_least(most, Network::width(t, l));
    }
    return most;
  }
  // Inputs and outputs of layers alternate between two buffers. All towers read the observations.
  static constexpr int EVEN = stride(widest(2)), ODD = stride(widest(1));
  static constexpr int OUT = stride(at_least(Network::width(0, LAYERS), Network::width(TOWERS - 1, LAYERS)));
  alignas(16) float input[ROWS * stride(Network::OBS)];
  alignas(16) float odd[TOWERS][LAYERS > 1 ? ROWS * ODD : 4];  // mutant(swap >): more room, never read
  alignas(16) float even[TOWERS][LAYERS > 2 ? ROWS * EVEN : 4];
  alignas(16) float output[TOWERS][ROWS * OUT];
  // The core of one tower: layers with hidden state, their states, and the products of the gates, of which a GRU has two.
  static constexpr int SCANS = Network::GRU ? 1 : Network::GATED, PRODUCTS = Network::GRU ? 2 : Network::GATED > 0;
  static constexpr int UNITS = stride(Network::SIZE), GATES = stride(3 * Network::SIZE);
  static constexpr int OF_CORE = ROWS * (SCANS * UNITS + PRODUCTS * GATES);
  alignas(16) float of_core[OF_CORE > 0 ? TOWERS * OF_CORE : 4];

  DEVICE float* states(const int tower) { return of_core + tower * OF_CORE; }
  DEVICE float* gates(const int tower) { return states(tower) + ROWS * SCANS * UNITS; }
  // Number k of a row's hidden state. The numbers up to the next multiple of SIZE follow it.
  DEVICE float* state(const int row, const int k) {
    const int scan = k / Network::SIZE, tower = scan / SCANS;
    return states(tower) + (scan - tower * SCANS) * ROWS * UNITS + row * UNITS + k - scan * Network::SIZE;
  }
  DEVICE float* observation(const int row) { return input + row * stride(Network::OBS); }
  DEVICE const float* parameters(const int row) const { return output[0] + row * OUT; }
  DEVICE float value(const int row) const { return output[TOWERS - 1][row * OUT + (TOWERS == 1 ? Network::PARAMETERS : 0)]; }
  // Whether layer l reads the state of a GRU, before or after a step.
  static constexpr bool is_state(const int l) { return Network::GRU && (l == Network::HIDDEN + 1 || l == Network::HIDDEN + 2); }
  // Inputs of layer L, which are the outputs of the previous layer.
  template <int L> DEVICE float* numbers(const int tower) {
    if constexpr (is_state(L)) return states(tower);
    else if constexpr (L == 0) return input;
    else if constexpr (L == LAYERS) return output[tower];
    else if constexpr (L % 2 == 1) return odd[tower];
    else return even[tower];
  }
  template <int L> static constexpr int numbers_stride() {
    return is_state(L) ? UNITS : L == 0 ? stride(Network::OBS) : L == LAYERS ? OUT : L % 2 == 1 ? ODD : EVEN;
  }
  // Results of layer L.
  template <int L> DEVICE float* results(const int tower) {
    if constexpr (Network::gated(L)) return gates(tower) + (Network::GRU ? L - Network::HIDDEN : 0) * ROWS * GATES;
    else return numbers<L + 1>(tower);
  }
  template <int L> static constexpr int results_stride() { return Network::gated(L) ? GATES : numbers_stride<L + 1>(); }
};

// Tiling of layer L over all towers. A part is the work of one thread: DOWN rows by ACROSS columns of one tower.
template <class Network, int L> struct Parts {
  typedef Layer<Network, 0, L> First;
  typedef Layer<Network, Network::TOWERS - 1, L> Last;  // has as many inputs and, unless L is a tower's last layer, as many outputs
  // mutant(swap -): speed only
  static constexpr int ROWS = Tile<Network>::ROWS, OUTPUTS = First::OUT + Last::OUT * (Network::TOWERS - 1);
  static constexpr int CHAINS = divided_up(ROWS * OUTPUTS, WarpSet::SIZE);
  static constexpr int ACROSS = First::OUT < PAD || CHAINS == 1 ? 1 : CHAINS < 4 ? 2 : 4;
  static constexpr int MOST_DOWN = at_most(ROWS, at_least(1, at_most(CHAINS, MOST_CHAINS) / ACROSS));
  static constexpr int ACROSS_ALL = divided_up(ROWS, MOST_DOWN);       // parts of a column
  static constexpr int DOWN = divided_up(ROWS, ACROSS_ALL);
  static constexpr bool WHOLE = ROWS % DOWN == 0;                      // whether all parts have DOWN rows
  static constexpr bool FEW = DOWN * ACROSS <= 8;                      // leaves registers for prefetching
  static constexpr int AT_ONCE = DOWN * ACROSS <= 4 ? 16 : FEW ? 8 : 4;  // numbers of a row. mutant(swap <=): speed only
  static constexpr int FIRST_COLUMNS = divided_up(First::OUT, ACROSS);  // parts of a row, in the first tower
  static constexpr int COLUMNS = FIRST_COLUMNS + (Network::TOWERS == 2 ? divided_up(Last::OUT, ACROSS) : 0);
};

// Operands that a thread loads at once.
template <class Part> struct Factors {
  Pack<Part::ACROSS> weight[Part::AT_ONCE];
  Pack<4> row[Part::DOWN][Part::AT_ONCE / 4];
};

template <class Network, int L> DEVICE void compute_layer(const WarpSet warps, Tile<Network>& tile, const float* layers) {
  typedef Parts<Network, L> Part;
  typedef typename Part::First First;
  typedef typename Part::Last Last;
  typedef Tile<Network> Rows;
  constexpr int ROWS = Part::ROWS, DOWN = Part::DOWN, ACROSS = Part::ACROSS, IN = First::IN, SECOND = Network::TOWERS - 1;
  constexpr int IN_STRIDE = Rows::template numbers_stride<L>(), OUT_STRIDE = Rows::template results_stride<L>();
  for (int part = warps.rank; part < Part::COLUMNS * Part::ACROSS_ALL; part += WarpSet::SIZE) {
    // Locate this thread's part: rows from m on, columns from n on, in one of the two towers.
    const int column = part % Part::COLUMNS, m = part / Part::COLUMNS * DOWN;
    const bool second = SECOND && column >= Part::FIRST_COLUMNS;
    const int n = (column - (second ? Part::FIRST_COLUMNS : 0)) * ACROSS, wide = second ? Last::OUT_PAD : First::OUT_PAD;
    const float* const from = tile.template numbers<L>(second);
    float* const to = tile.template results<L>(second) + m * OUT_STRIDE + n;
    const float* const weights = layers + n + (second ? weights_before<Network, SECOND, L>() : weights_before<Network, 0, L>());
    const float* rows[DOWN];  // if the part has fewer rows, the last one replaces missing ones
    float sum[DOWN][ACROSS];
    // Initialize the accumulators with the biases.
    const Pack<ACROSS> biases = *(const Pack<ACROSS>*)(weights + IN * wide);
    UNROLL for (int i = 0; i < DOWN; ++i) {
      rows[i] = from + (Part::WHOLE ? m + i : math::min(m + i, ROWS - 1)) * IN_STRIDE;
      UNROLL for (int j = 0; j < ACROSS; ++j) sum[i][j] = biases.of[j];
    }
    // Main loop over groups of AT_ONCE inputs.
    const auto add = [&](const Factors<Part>& some) INLINED {
      UNROLL for (int k = 0; k < Part::AT_ONCE; ++k) {
        UNROLL for (int i = 0; i < DOWN; ++i) {
          const float factor = some.row[i][k / 4].of[k % 4];
          UNROLL for (int j = 0; j < ACROSS; ++j) sum[i][j] = math::fma(factor, some.weight[k].of[j], sum[i][j]);
        }
      }
    };
    const auto load = [&](const int group) INLINED {
      Factors<Part> some;
      UNROLL for (int k = 0; k < Part::AT_ONCE; ++k) {  // mutant(swap <): overwritten before it is read
        some.weight[k] = *(const Pack<ACROSS>*)(weights + (group * Part::AT_ONCE + k) * wide);
      }
      UNROLL for (int i = 0; i < DOWN; ++i) {
        UNROLL for (int q = 0; q < Part::AT_ONCE / 4; ++q) {
          some.row[i][q] = ((const Pack<4>*)rows[i])[group * (Part::AT_ONCE / 4) + q];
        }
      }
      return some;
    };
    constexpr int GROUPS = IN / Part::AT_ONCE;
    // mutant(swap &&): loads values that are not added
    if constexpr (GROUPS > 0 && Part::FEW) {  // double-buffered: prefetch the next operands while these are multiplied
      Factors<Part> next = load(0);
      UNROLL_TIMES(GROUPS <= 4 ? GROUPS : 2) for (int group = 0; group < GROUPS; ++group) {
        const Factors<Part> now = next;
        if (group + 1 < GROUPS) next = load(group + 1);
        add(now);
      }
    } else {
      UNROLL_TIMES(2) for (int group = 0; group < GROUPS; ++group) add(load(group));
    }
    // Remaining numbers of the rows, one at a time.
    UNROLL for (int k = GROUPS * Part::AT_ONCE; k < IN; ++k) {
      const Pack<ACROSS> weight = *(const Pack<ACROSS>*)(weights + k * wide);
      UNROLL for (int i = 0; i < DOWN; ++i) {
        UNROLL for (int j = 0; j < ACROSS; ++j) sum[i][j] = math::fma(rows[i][k], weight.of[j], sum[i][j]);
      }
    }
    // Epilogue. Few results pass the activation in registers, and many pass it in a loop of their own, which keeps the code short.
    // Columns may reach OUT_STRIDE.
    UNROLL for (int i = 0; i < DOWN; ++i) {
      Pack<ACROSS> result;
      UNROLL for (int j = 0; j < ACROSS; ++j) {
        result.of[j] = !First::ACTIVATED || !Part::FEW ? sum[i][j] : activation<Network::RELU>(sum[i][j]);
      }
      if (Part::WHOLE || m + i < ROWS) *(Pack<ACROSS>*)(to + i * OUT_STRIDE) = result;
    }
    if constexpr (First::ACTIVATED && !Part::FEW) {
      UNROLL_TIMES(8 / ACROSS) for (int i = 0; i < DOWN; ++i) {
        if (!Part::WHOLE && m + i >= ROWS) break;
        Pack<ACROSS> result = *(Pack<ACROSS>*)(to + i * OUT_STRIDE);
        UNROLL for (int j = 0; j < ACROSS; ++j) result.of[j] = activation<Network::RELU>(result.of[j]);
        *(Pack<ACROSS>*)(to + i * OUT_STRIDE) = result;
      }
    }
  }
}

// Compute one step of the core's layer whose last linear layer is L. Its products must be visible to all threads.
template <class Network, int L> DEVICE void step_units(const WarpSet warps, Tile<Network>& tile) {
  typedef Tile<Network> Rows;
  constexpr int SIZE = Network::SIZE, ROWS = Rows::ROWS, GATES = Rows::GATES, UNITS = Rows::UNITS;
  for (int i = warps.rank; i < Network::TOWERS * ROWS * SIZE; i += WarpSet::SIZE) {
    const int u = i % SIZE, row = i / SIZE, second = row / ROWS, m = row - second * ROWS;
    const float* const x = tile.gates(second) + m * GATES + u;
    if constexpr (Network::GRU) {
      const float* const g = x + ROWS * GATES;
      float& state = tile.states(second)[m * UNITS + u];
      state = GruUnit(x[0] + g[0], x[SIZE] + g[SIZE], g[2 * SIZE], x[2 * SIZE], state).after;
    } else {
      float& state = tile.states(second)[((L - Network::HIDDEN) * ROWS + m) * UNITS + u];
      const float read = tile.template numbers<L>(second)[m * Rows::template numbers_stride<L>() + u];
      const MinGruUnit unit(x[0], x[SIZE], x[2 * SIZE], state);
      state = unit.after;
      tile.template numbers<L + 1>(second)[m * Rows::template numbers_stride<L + 1>() + u] =
          math::fma(unit.highway, state - read, read);
    }
  }
}

template <class Network, int L = 0> DEVICE void forward_from(const WarpSet warps, Tile<Network>& tile, const float* layers) {
  if constexpr (L < Network::LAYERS) {
    if constexpr (L > 0) warps.sync();  // the previous layer's outputs are written before they are read
    compute_layer<Network, L>(warps, tile, layers);
    if constexpr (Network::gated(L) && !(Network::GRU && L == Network::HIDDEN)) {
      warps.sync();  // gate products are written before they are read
      step_units<Network, L>(warps, tile);
    }
    forward_from<Network, L + 1>(warps, tile, layers);
  }
}

template <class Network> DEVICE void begin_tile(const WarpSet, Tile<Network>&) {}

// Compute parameters and values of all rows, whose observations must be visible to the whole warp set. Sync before reading the
// results.
template <class Network>
DEVICE void forward(const WarpSet warps, Tile<Network>& tile, [[maybe_unused]] const SharedWeights<Network>& shared,
                    [[maybe_unused]] const Source<Network>& source) {
  if constexpr (WEIGHTS_IN_SHARED) forward_from<Network>(warps, tile, shared.layers);
  else forward_from<Network>(warps, tile, source.packed);
}

}  // namespace policy
