// tensor.cuh -- perceptron.cuh on tensor cores, with the bits of learn/mma/tensor_forward.cu.
//
// Products are accumulated in blocks of depth 16, so that results have the same bits in a tile of any size. One warp takes rows
// through all layers of a tower in registers. A Network is that of perceptron.cuh, with FIRST_TOWER: number of towers of the
// policies before it.
//
// The hidden state is float32, in shared memory (HIDDEN_IN_SHARED) or where the learner stores it. A thread accesses it only at the
// positions of its accumulators, so that a warp needs no barrier within a step. Bits of a GRU differ from those of separate
// launches, which round its products before adding them.
#pragma once
#include "learn/mma/mma.cuh"
#include "learn/mma/norm.cuh"

namespace policy {

constexpr int BLOCK = 16;       // rows and columns of a block for tensor cores
constexpr int WARP_BANKS = 32;  // of shared memory, each 4 bytes wide

constexpr int padded(int n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }  // mutant(swap -): adds zeros

template <class Network, int T, int L> struct Layer {
  static constexpr int IN = Network::width(T, L), OUT = Network::outputs(T, L), IN_PAD = padded(IN), OUT_PAD = padded(OUT);
  // Index of its weights. Its biases follow, then the gains and biases of its normalization.
  static constexpr int TENSOR = 2 * (T * Network::PARTS_OF_TOWER + (1 + Network::LAYER_NORM) * L);
  static constexpr bool LAST = L == Network::LAYERS - 1, NORMALIZED = Network::LAYER_NORM && !LAST;
};

// Size in shared memory of the layers before layer (tower, layer).
template <class Network> constexpr int weights_before(const int tower, const int layer) {
  int sum = 0;  // mutant(swap = 0;): a CPU's matrix may begin anywhere
  for (int k = 0; k < tower * Network::LAYERS + layer; ++k) {
    const int t = k / Network::LAYERS, l = k % Network::LAYERS;
    sum += padded(Network::outputs(t, l)) * (padded(Network::width(t, l)) + SKEW);
  }
  return sum;
}
template <class Network> constexpr int biases_before(const int tower, const int layer) {
  int sum = 0;  // mutant(swap = 0;): a CPU's matrix may begin anywhere
  for (int k = 0; k < tower * Network::LAYERS + layer; ++k) {
    sum += padded(Network::outputs(k / Network::LAYERS, k % Network::LAYERS));
  }
  return sum;
}

// Entries of the widest hidden layer.
template <class Network> constexpr int widest() {
  int most = 0;
  for (int k = 0; k < Network::TOWERS * Network::LAYERS; ++k) {
    const int width = k % Network::LAYERS == 0 ? 0 : Network::width(k / Network::LAYERS, k % Network::LAYERS);
    most = width > most ? width : most;
  }
  return most;
}

// A network's weights in global memory.
template <class Network> struct Source {
  // Weights (OUT, IN) and biases (OUT) of each layer, in the network's own memory.
  const float* tensors[2 * Network::TOWERS * Network::PARTS_OF_TOWER];
  const float* center;   // (OBS): means for normalizing observations, or null
  const float* scale;    // (OBS): reciprocal deviations
  const float* epsilon;  // (1), or null if the policy is not epsilon-greedy
};

// Gains and biases of normalizations, at the places of the layers' biases.
template <class Network, bool = Network::LAYER_NORM> struct SharedNorms {};
template <class Network> struct SharedNorms<Network, true> {
  alignas(8) float gains[biases_before<Network>(Network::TOWERS, 0)], norm_biases[biases_before<Network>(Network::TOWERS, 0)];
};
// The same in shared memory.
template <class Network> struct SharedWeights : SharedNorms<Network> {
  alignas(16) bf16 matrices[weights_before<Network>(Network::TOWERS, 0)];
  alignas(8) float biases[biases_before<Network>(Network::TOWERS, 0)];
  float center[Network::OBS], scale[Network::OBS];

  template <int T, int L> DEVICE Matrix<Layer<Network, T, L>::IN_PAD> weights() {
    return {matrices + weights_before<Network>(T, L)};
  }
};

// Load a network by all threads of a block.
template <int THREADS, int T = 0, int L = 0, class Network>
DEVICE void load_network(SharedWeights<Network>& shared, const Source<Network>& source, const int thread) {
  if constexpr (T < Network::TOWERS) {
    typedef Layer<Network, T, L> Here;
    LayerLoad<Here, THREADS> load(source.tensors[Here::TENSOR], source.tensors[Here::TENSOR + 1], thread);
    load.store(shared.template weights<T, L>(), shared.biases + biases_before<Network>(T, L));
    if constexpr (Here::NORMALIZED) {
      for (int n = thread; n < Here::OUT_PAD; n += THREADS) {
        const int at = biases_before<Network>(T, L) + n;
        shared.gains[at] = n < Here::OUT ? source.tensors[Here::TENSOR + 2][n] : 0.0f;
        shared.norm_biases[at] = n < Here::OUT ? source.tensors[Here::TENSOR + 3][n] : 0.0f;
      }
    }
    load_network<THREADS, T + Here::LAST, Here::LAST ? 0 : L + 1>(shared, source, thread);
  } else if (source.center != nullptr) {
    for (int d = thread; d < Network::OBS; d += THREADS) {
      shared.center[d] = source.center[d];
      shared.scale[d] = source.scale[d];
    }
  }
}
template <class Network>
DEVICE float normalize_entry(const SharedWeights<Network>& shared, const Source<Network>& source, const float x, const int d) {
  return source.center == nullptr ? x : normalize_entry(x, shared.center, shared.scale, d);
}

// Two neighboring units of a core's layer, in one row.
typedef Pack<2> Two;

#if HIDDEN_IN_SHARED
// Hidden state of a row, XOR-swizzled: groups of eight numbers are permuted within four rows to avoid bank conflicts.
struct HiddenRow {
  float* at;
  int swizzle;

  // Number k. The numbers up to the next multiple of 8 follow it.
  DEVICE float* number(const int k) const { return at + (k ^ swizzle); }
  DEVICE Two load(const int k) const { return *(const Two*)number(k); }
  DEVICE void store(const int k, const Two two) const { *(Two*)number(k) = two; }
};
template <class Network, int ROWS> struct Hidden {
  static constexpr int FLOATS = (Network::STATE + WARP_BANKS - 1) / WARP_BANKS * WARP_BANKS;
  alignas(16) float states[FLOATS > 0 ? padded(ROWS) * FLOATS : 4];

  DEVICE HiddenRow row(const int m) { return {states + m * FLOATS, m % 4 * 8}; }
};
#else
// Addresses of the state before a step, null if an episode begins there, and of the state after it, null if it is not stored.
struct HiddenRow {
  const float* from;
  float* to;

  DEVICE Two load(const int k) const { return from == nullptr ? Two{} : *(const Two*)(from + k); }
  DEVICE void store(const int k, const Two two) const { if (to != nullptr) *(Two*)(to + k) = two; }
};
template <class Network, int ROWS> struct Hidden {
  const float* before;  // (ROWS, STATE)
  float* after;         // (ROWS, STATE), or null
  u8 starts[ROWS];      // whether the step begins an episode

  DEVICE HiddenRow row(const int m) {
    const bool there = m < ROWS;
    return {there && !starts[m] ? before + m * Network::STATE : nullptr,
            there && after != nullptr ? after + m * Network::STATE : nullptr};
  }
};
#endif

// Working memory of a warp set for the rows of its environments. Rows are padded to whole blocks, and the results of padding are
// unused.
template <class Network> struct Tile {
  static constexpr int LAYERS = Network::LAYERS, TOWERS = Network::TOWERS, ROWS = ENVS_PER_BLOCK * Network::AGENTS;
  static constexpr int ALL_ROWS = padded(ROWS), FIRST = Network::width(0, LAYERS), LAST = Network::width(TOWERS - 1, LAYERS);
  static constexpr int OUT = (FIRST > LAST ? FIRST : LAST) | 1;  // odd stride: banks differ. mutant(swap >): equal where they meet
  alignas(16) bf16 input[ALL_ROWS * Matrix<padded(Network::OBS)>::STRIDE];
  Hidden<Network, ROWS> hidden;
  float results[TOWERS][ALL_ROWS * OUT];

  DEVICE Matrix<padded(Network::OBS)> inputs() { return {input}; }
  DEVICE bf16* observation(const int row) { return inputs().row(row); }
#if HIDDEN_IN_SHARED
  DEVICE float* state(const int row, const int k) { return hidden.row(row).number(k); }
#endif
  DEVICE const float* parameters(const int row) const { return results[0] + row * OUT; }
  DEVICE float value(const int row) const { return results[TOWERS - 1][row * OUT + (TOWERS == 1 ? Network::PARAMETERS : 0)]; }
};

// Clear the padding of observations, and the hidden state of padding rows.
template <class Network> DEVICE void begin_tile(const WarpSet warps, Tile<Network>& tile) {
  for (int m = warps.rank; m < Tile<Network>::ALL_ROWS; m += WarpSet::SIZE) {
#if HIDDEN_IN_SHARED
    if (m >= Tile<Network>::ROWS) {
      for (int k = 0; k < Network::STATE; ++k) *tile.hidden.row(m).number(k) = 0.0f;
    }
#endif
    // mutant(swap < 1): padding rows. mutant(swap < 2): room between rows, never read
    for (int d = m < Tile<Network>::ROWS ? Network::OBS : 0; d < padded(Network::OBS); ++d) tile.observation(m)[d] = 0.0f;
  }
}

// If learning uses a library's products (layerwise_tensor.py), biases and inputs of activations are rounded as they are there.
template <class Network> DEVICE float as_learnt(const float x) { return Network::GATED > 0 ? rounded(x) : x; }
template <class Network> DEVICE float bias_at(const float* biases, const int n) { return as_learnt<Network>(biases[n]); }
// Two results of a hidden layer as operands of the next layer, or as inputs of its normalization.
template <class Network> DEVICE u32 activated(const float c, const float d) {
  if constexpr (Network::LAYER_NORM) return pair(c, d);
  else return pair(activation<Network::RELU>(as_learnt<Network>(c)), activation<Network::RELU>(as_learnt<Network>(d)));
}
// Normalize a row of a hidden layer, as learn/mma/tensor.cuh does. word(j): pair j of this lane's columns.
template <class Network, int T, int L, class WordOf>
DEVICE void normalize_row(const SharedWeights<Network>& shared, const int lane, WordOf word) {
  typedef Layer<Network, T, L> Here;
  const float* const gains = shared.gains + biases_before<Network>(T, L);
  const float* const biases = shared.norm_biases + biases_before<Network>(T, L);
  NormRow<Here::OUT, Here::OUT_PAD, QUAD> row;
  row.each(lane, [&](int j, int, float(&two)[2]) INLINED {
    two[0] = first_of(word(j));
    two[1] = second_of(word(j));
  });
  row.normalize(lane);
  row.each(lane, [&](int j, int n, const float(&two)[2]) INLINED {
    word(j) = pair(activation<Network::RELU>(math::fma(two[0], gains[n], biases[n])),
                   activation<Network::RELU>(math::fma(two[1], gains[n + 1], biases[n + 1])));
  });
}
// Store results (m, n) and (m, n + 1) of the last layer of tower T.
template <class Network, int T>
DEVICE void store_results(Tile<Network>& tile, const int m, const int n, const float c, const float d) {
  constexpr int OUT = Network::width(T, Network::LAYERS);
  float* const to = tile.results[T] + m * Tile<Network>::OUT + n;
  if (n < OUT) to[0] = c;
  if (n + 1 < OUT) to[1] = d;
}

// Biases of units n and n + 1 of a core's layer, for its three gates. Gate 3 is the summand of a GRU's candidate that the reset
// gate does not multiply. The accumulators of a GRU begin with the biases. A MinGRU's products are rounded first. L is the first
// linear layer of the core's layer.
template <class Network, int T, int L> DEVICE Two gate_bias(const SharedWeights<Network>& shared, const int gate, const int n) {
  constexpr int SIZE = Network::SIZE;
  const float* const biases = shared.biases + biases_before<Network>(T, L) + n;
  if constexpr (!Network::GRU) {
    return *(const Two*)(biases + gate * SIZE);
  } else {
    const float* const of_state = shared.biases + biases_before<Network>(T, L + 1) + n;
    if (gate == 3) return *(const Two*)(biases + 2 * SIZE);
    Two both = *(const Two*)(of_state + gate * SIZE);
    if (gate < 2) UNROLL for (int j = 0; j < 2; ++j) both.of[j] += biases[gate * SIZE + j];
    return both;
  }
}
// Replace the state of two units, and return their outputs. sum[gate]: products with biases. x: inputs of a MinGRU.
template <class Network> DEVICE u32 step_units(const Two (&sum)[Network::GATES], const u32 x, Two& state) {
  const float read[2] = {first_of(x), second_of(x)};
  Two out;
  UNROLL for (int j = 0; j < 2; ++j) {
    if constexpr (Network::GRU) {
      out.of[j] = state.of[j] = GruUnit(sum[0].of[j], sum[1].of[j], sum[2].of[j], sum[3].of[j], state.of[j]).after;
    } else {
      const MinGruUnit unit(sum[0].of[j], sum[1].of[j], sum[2].of[j], state.of[j]);
      state.of[j] = unit.after;
      out.of[j] = math::fma(unit.highway, unit.after - read[j], read[j]);
    }
  }
  return pair(out.of[0], out.of[1]);
}
// Offset of the states of a core's layer among an agent's. A GRU has one state for two linear layers.
template <class Network, int T, int L> constexpr int states_before() {
  return (T * (Network::GRU ? 1 : Network::GATED) + (Network::GRU ? 0 : L - Network::HIDDEN)) * Network::SIZE;
}

#ifdef __CUDACC__
// Load a 16 x 16 block of weights. They are constant now: without `volatile` and "memory" the compiler may prefetch them.
DEVICE void load_weights(u32 (&to)[4], const u32 address) {
  asm("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address));
}

// Add the products of a block of rows with 16 columns of layer L, from `column` on.
template <class Network, int T, int L, int DEPTH>
DEVICE void add_columns(float (&sum)[2][4], const u32 (&left)[DEPTH][1][4], const u32 weights, const int column, const int k) {
  u32 right[4];
  load_weights(right, weights + (u32)sizeof(bf16) * (column * Matrix<Layer<Network, T, L>::IN_PAD>::STRIDE + BLOCK * k));
  UNROLL for (int half = 0; half < 2; ++half) mma_add(sum[half], left[k][0], right[2 * half], right[2 * half + 1]);
}
// Address of a lane's weights in the first block of a layer.
template <class Network, int T, int L> DEVICE u32 corner_of(const u32 matrices) {
  constexpr int STRIDE = Matrix<Layer<Network, T, L>::IN_PAD>::STRIDE;
  const int lane = threadIdx.x % WARP_SIZE;
  return matrices + (u32)sizeof(bf16) * (weights_before<Network>(T, L) + (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8);
}

// Compute the core's layer that begins with linear layer L, for one block of rows.
template <class Network, int T, int L, int DEPTH>
DEVICE void compute_core(Tile<Network>& tile, SharedWeights<Network>& shared, const u32 matrices, const int first,
                         const u32 (&left)[DEPTH][1][4], u32 (&outputs)[Network::SIZE / BLOCK][1][4]) {
  constexpr int SIZE = Network::SIZE, GATES = Network::GATES, COLUMNS = SIZE / BLOCK,
                HIGH = Tile<Network>::ROWS <= BLOCK / 2 ? 1 : 2;
  const int lane = threadIdx.x % WARP_SIZE, m = first + lane / 4, unit = lane % 4 * 2;
  const u32 weights = corner_of<Network, T, L>(matrices);
  constexpr int STATES = states_before<Network, T, L>();
  const HiddenRow hidden[2] = {tile.hidden.row(m), tile.hidden.row(m + 8)};
  // The state before the step as A fragments. All of it is loaded before any of it is replaced.
  [[maybe_unused]] u32 recurrent[Network::GRU ? COLUMNS : 1][1][4];
  if constexpr (Network::GRU) {
    UNROLL for (int k = 0; k < COLUMNS; ++k) {
      UNROLL for (int word = 0; word < 4; ++word) {
        const Two two = hidden[word % 2].load(STATES + BLOCK * k + word / 2 * 8 + unit);
        recurrent[k][0][word] = pair(two.of[0], two.of[1]);
      }
    }
  }
  // Each iteration computes 16 units.
  UNROLL for (int column = 0; column < COLUMNS; ++column) {
    Two before[2][2];  // prefetched
    float sum[GATES][2][4];
    UNROLL for (int half = 0; half < 2; ++half) {
      const int n = BLOCK * column + 8 * half + unit;
      UNROLL for (int lower = 0; lower < HIGH; ++lower) before[half][lower] = hidden[lower].load(STATES + n);
      UNROLL for (int gate = 0; gate < GATES; ++gate) {
        const Two bias = gate_bias<Network, T, L>(shared, gate, n);
        UNROLL for (int j = 0; j < 4; ++j) sum[gate][half][j] = Network::GRU ? bias.of[j % 2] : 0.0f;
      }
    }
    // Products of the inputs, then of a GRU's state.
    UNROLL for (int k = 0; k < DEPTH; ++k) {
      UNROLL for (int part = 0; part < 3; ++part) {
        add_columns<Network, T, L>(sum[part == 2 ? GATES - 1 : part], left, weights, part * SIZE + BLOCK * column, k);
      }
    }
    if constexpr (Network::GRU) {
      const u32 of_state = corner_of<Network, T, L + 1>(matrices);
      UNROLL for (int k = 0; k < COLUMNS; ++k) {
        UNROLL for (int part = 0; part < 3; ++part) {
          add_columns<Network, T, L + 1>(sum[part], recurrent, of_state, part * SIZE + BLOCK * column, k);
        }
      }
    }
    // Epilogue: gates and new states.
    UNROLL for (int half = 0; half < 2; ++half) {
      UNROLL for (int lower = 0; lower < 2; ++lower) {
        u32& out = outputs[column][0][2 * half + lower];
        out = 0u;
        if (lower >= HIGH) continue;
        Two sums[GATES];
        UNROLL for (int gate = 0; gate < GATES; ++gate) {
          const Two bias = gate_bias<Network, T, L>(shared, gate, BLOCK * column + 8 * half + unit);
          UNROLL for (int j = 0; j < 2; ++j) {
            const float c = sum[gate][half][2 * lower + j];
            sums[gate].of[j] = Network::GRU ? c : rounded(c) + bias.of[j];
          }
        }
        u32 x = 0u;
        if constexpr (!Network::GRU) x = left[column][0][2 * half + lower];
        out = step_units<Network>(sums, x, before[half][lower]);
        hidden[lower].store(STATES + BLOCK * column + 8 * half + unit, before[half][lower]);
      }
    }
  }
}

// Compute layer L of tower T, and those after it, for TALL blocks of rows from `first` on. matrices: address of all weights.
template <class Network, int T, int L, int TALL, int DEPTH>
DEVICE void compute_layers(Tile<Network>& tile, SharedWeights<Network>& shared, const u32 matrices, const int first,
                           const u32 (&left)[DEPTH][TALL][4]);

// The same for a plain layer L.
template <class Network, int T, int L, int TALL, int DEPTH>
DEVICE void compute_plain(Tile<Network>& tile, SharedWeights<Network>& shared, const u32 matrices, const int first,
                          const u32 (&left)[DEPTH][TALL][4]) {
  typedef Layer<Network, T, L> Here;
  constexpr int COLUMNS = Here::OUT_PAD / BLOCK, STRIDE = Matrix<Here::IN_PAD>::STRIDE;
  // Halves of a block, of its columns and of its rows, whose results are used.
  constexpr int WIDE = Here::LAST && Here::OUT <= BLOCK / 2 ? 1 : 2, HIGH = Tile<Network>::ROWS <= BLOCK / 2 ? 1 : 2;
  const float* const biases = shared.biases + biases_before<Network>(T, L);
  const int lane = threadIdx.x % WARP_SIZE, g = lane / 4, t = lane % 4;
  const int corner = weights_before<Network>(T, L) + (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8;
  u32 outputs[COLUMNS][TALL][4] = {};
  UNROLL for (int column = 0; column < COLUMNS; ++column) {
    float sum[TALL][2][4];
    UNROLL for (int k = 0; k < DEPTH; ++k) {
      u32 right[4];
      load_weights(right, matrices + (u32)sizeof(bf16) * (corner + BLOCK * (column * STRIDE + k)));
      UNROLL for (int i = 0; i < TALL; ++i) {
        UNROLL for (int half = 0; half < WIDE; ++half) {
          if (k == 0) mma_zero(sum[i][half], left[0][i], right[2 * half], right[2 * half + 1]);
          else mma_add(sum[i][half], left[k][i], right[2 * half], right[2 * half + 1]);
        }
      }
    }
    // Epilogue: biases and activation.
    UNROLL for (int half = 0; half < WIDE; ++half) {
      const int n = BLOCK * column + 8 * half + 2 * t;
      const float bias = bias_at<Network>(biases, n), next_bias = bias_at<Network>(biases, n + 1);
      UNROLL for (int i = 0; i < TALL; ++i) {
        UNROLL for (int lower = 0; lower < HIGH; ++lower) {
          const float c = sum[i][half][2 * lower] + bias, d = sum[i][half][2 * lower + 1] + next_bias;
          if constexpr (Here::LAST) store_results<Network, T>(tile, first + BLOCK * i + 8 * lower + g, n, c, d);
          else outputs[column][i][2 * half + lower] = activated<Network>(c, d);
        }
      }
    }
  }
  if constexpr (Here::NORMALIZED) {
    UNROLL for (int i = 0; i < TALL; ++i) {
      UNROLL for (int lower = 0; lower < HIGH; ++lower) {
        normalize_row<Network, T, L>(shared, lane, [&](int j) INLINED -> u32& { return outputs[j / 2][i][2 * (j % 2) + lower]; });
      }
    }
  }
  if constexpr (!Here::LAST) compute_layers<Network, T, L + 1>(tile, shared, matrices, first, outputs);
}

template <class Network, int T, int L, int TALL, int DEPTH>
DEVICE void compute_layers(Tile<Network>& tile, SharedWeights<Network>& shared, const u32 matrices, const int first,
                           const u32 (&left)[DEPTH][TALL][4]) {
  if constexpr (Network::gated(L)) {
    u32 outputs[Network::SIZE / BLOCK][1][4];
    compute_core<Network, T, L>(tile, shared, matrices, first, left, outputs);
    compute_layers<Network, T, L + (Network::GRU ? 2 : 1)>(tile, shared, matrices, first, outputs);
  } else {
    compute_plain<Network, T, L>(tile, shared, matrices, first, left);
  }
}

// Compute parameters and values of all rows. Sync before and after. The warp set's warps divide the towers of all policies.
template <class Network>
DEVICE void forward(const WarpSet warps, Tile<Network>& tile, SharedWeights<Network>& shared, const Source<Network>&) {
  constexpr int DEPTH = padded(Network::OBS) / BLOCK, ROWS = Tile<Network>::ROWS;
  constexpr int TALL = ROWS > BLOCK && widest<Network>() <= 64 && Network::GATED == 0 ? 2 : 1;  // two chains if possible
  const int warp = WARPS_PER_SET == 1 ? 0 : warps.rank / WARP_SIZE;
  u32 matrices = (u32)__cvta_generic_to_shared(shared.matrices);
  hold(matrices);  // otherwise the compiler would load weights before the first step, and spill them
  NO_UNROLL for (int first = 0; first < ROWS; first += BLOCK * TALL) {
    u32 left[DEPTH][TALL][4];
    UNROLL for (int k = 0; k < DEPTH; ++k) {
      UNROLL for (int i = 0; i < TALL; ++i) load_a<false>(left[k][i], tile.inputs(), first + BLOCK * i, BLOCK * k);
    }
    if (Network::FIRST_TOWER % WARPS_PER_SET == warp) compute_layers<Network, 0, 0>(tile, shared, matrices, first, left);
    if constexpr (Network::TOWERS == 2) {
      if ((Network::FIRST_TOWER + 1) % WARPS_PER_SET == warp) compute_layers<Network, 1, 0>(tile, shared, matrices, first, left);
    }
  }
}
#else
template <class Network, int T, int L>
DEVICE void compute_layers(const Team team, Tile<Network>& tile, SharedWeights<Network>& shared,
                           const Matrix<Layer<Network, T, L>::IN_PAD> inputs);

template <class Network, int T, int L>
DEVICE void compute_core(const Team team, Tile<Network>& tile, SharedWeights<Network>& shared,
                         const Matrix<Layer<Network, T, L>::IN_PAD> inputs) {
  typedef Layer<Network, T, L> Here;
  constexpr int ROWS = Tile<Network>::ALL_ROWS, SIZE = Network::SIZE, GATES = Network::GATES,
                STATES = states_before<Network, T, L>();
  alignas(16) bf16 numbers[ROWS * Matrix<SIZE>::STRIDE], before[Matrix<SIZE>::STRIDE];
  const Matrix<SIZE> outputs{numbers}, recurrent{before};
  for (int m : team.each(ROWS)) {
    const HiddenRow hidden = tile.hidden.row(m);
    float products[2][Here::OUT_PAD] = {};
    // Products of the inputs and of the state.
    add_row<Here::OUT_PAD, Here::IN_PAD, true>(products[0], m, inputs, shared.template weights<T, L>());
    if constexpr (Network::GRU) {
      for (int n = 0; n < SIZE; ++n) recurrent.row(0)[n] = hidden.load(STATES + n / 2 * 2).of[n % 2];
      add_row<Here::OUT_PAD, SIZE, true>(products[1], 0, recurrent, shared.template weights<T, L + 1>());
    }
    // Gates and new states.
    for (int n = 0; n < SIZE; n += 2) {
      Two sums[GATES];
      for (int gate = 0; gate < GATES; ++gate) {
        sums[gate] = gate_bias<Network, T, L>(shared, gate, n);
        const int part = gate == 3 ? 2 : gate;
        for (int j = 0; j < 2; ++j) {
          const int at = part * SIZE + n + j;
          if (Network::GRU) sums[gate].of[j] += (gate == 2 ? 0.0f : products[0][at]) + (gate == 3 ? 0.0f : products[1][at]);
          else sums[gate].of[j] += rounded(products[0][at]);
        }
      }
      u32 x = 0u;
      if constexpr (!Network::GRU) x = inputs.two(m, n);
      Two state = hidden.load(STATES + n);
      outputs.two(m, n) = step_units<Network>(sums, x, state);
      hidden.store(STATES + n, state);
    }
  }
  compute_layers<Network, T, L + (Network::GRU ? 2 : 1)>(team, tile, shared, outputs);
}

template <class Network, int T, int L>
DEVICE void compute_plain(const Team team, Tile<Network>& tile, SharedWeights<Network>& shared,
                          const Matrix<Layer<Network, T, L>::IN_PAD> inputs) {
  typedef Layer<Network, T, L> Here;
  constexpr int ROWS = Tile<Network>::ALL_ROWS;
  const float* const biases = shared.biases + biases_before<Network>(T, L);
  alignas(16) bf16 numbers[ROWS * Matrix<Here::OUT_PAD>::STRIDE];
  const Matrix<Here::OUT_PAD> outputs{numbers};
  for (int m : team.each(ROWS)) {
    float sum[Here::OUT_PAD] = {};
    add_row<Here::OUT_PAD, Here::IN_PAD, true>(sum, m, inputs, shared.template weights<T, L>());
    for (int n = 0; n < Here::OUT_PAD; n += 2) {
      const float c = sum[n] + bias_at<Network>(biases, n), d = sum[n + 1] + bias_at<Network>(biases, n + 1);
      if constexpr (Here::LAST) store_results<Network, T>(tile, m, n, c, d);
      else outputs.two(m, n) = activated<Network>(c, d);
    }
    if constexpr (Here::NORMALIZED) {
      normalize_row<Network, T, L>(shared, 0, [&](int j) INLINED -> Word& { return outputs.two(m, 2 * j); });
    }
  }
  if constexpr (!Here::LAST) compute_layers<Network, T, L + 1>(team, tile, shared, outputs);
}

template <class Network, int T, int L>
DEVICE void compute_layers(const Team team, Tile<Network>& tile, SharedWeights<Network>& shared,
                           const Matrix<Layer<Network, T, L>::IN_PAD> inputs) {
  if constexpr (Network::gated(L)) compute_core<Network, T, L>(team, tile, shared, inputs);
  else compute_plain<Network, T, L>(team, tile, shared, inputs);
}

// The same on a CPU. Each thread of a warp set takes its own rows through all layers.
template <class Network>
DEVICE void forward(const WarpSet warps, Tile<Network>& tile, SharedWeights<Network>& shared, const Source<Network>&) {
  const Team team{warps.rank};
  compute_layers<Network, 0, 0>(team, tile, shared, tile.inputs());
  if constexpr (Network::TOWERS == 2) compute_layers<Network, 1, 0>(team, tile, shared, tile.inputs());
}
#endif

}  // namespace policy
