// tensor.cuh -- perceptron.cuh on tensor cores, with the bits of learn/mma/tensor_forward.cu.
//
// A result is accumulated in blocks of 16 factors: it has the same bits in a tile of any size. One warp takes rows through all
// layers of a tower in registers. A Network is that of perceptron.cuh, and FIRST_TOWER: towers of the policies before it.
#pragma once
#include "learn/mma/mma.cuh"

namespace policy {

constexpr int BLOCK = 16;  // rows and columns that matrix units take at once

constexpr int padded(int n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }  // equal(swap -): adds zeros

template <class Network, int T, int L> struct Layer {
  static constexpr int IN = Network::width(T, L), OUT = Network::width(T, L + 1), IN_PAD = padded(IN), OUT_PAD = padded(OUT);
  static constexpr int TENSOR = 2 * (T * Network::LAYERS + L);  // its weights; the next are its biases
  static constexpr bool LAST = L == Network::LAYERS - 1;
};

// What the layers before layer (tower, layer) take in shared memory.
template <class Network> constexpr int weights_before(const int tower, const int layer) {
  int sum = 0;  // equal(swap = 0;): a CPU's matrix may begin anywhere
  for (int k = 0; k < tower * Network::LAYERS + layer; ++k) {
    const int t = k / Network::LAYERS, l = k % Network::LAYERS;
    sum += padded(Network::width(t, l + 1)) * (padded(Network::width(t, l)) + SKEW);
  }
  return sum;
}
template <class Network> constexpr int biases_before(const int tower, const int layer) {
  int sum = 0;  // equal(swap = 0;): a CPU's matrix may begin anywhere
  for (int k = 0; k < tower * Network::LAYERS + layer; ++k) {
    sum += padded(Network::width(k / Network::LAYERS, k % Network::LAYERS + 1));
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

// Where a network's weights are.
template <class Network> struct Source {
  // Weights (OUT, IN) and biases (OUT) of each layer: its own memory.
  const float* tensors[2 * Network::TOWERS * Network::LAYERS];
  const float* center;  // (OBS) or null: observations are normalised
  const float* scale;   // (OBS)
};

// The same in a block's memory.
template <class Network> struct NearWeights {
  alignas(16) bf16 matrices[weights_before<Network>(Network::TOWERS, 0)];
  float biases[biases_before<Network>(Network::TOWERS, 0)];
  float center[Network::OBS], scale[Network::OBS];

  template <int T, int L> DEVICE Matrix<Layer<Network, T, L>::IN_PAD> weights() {
    return {matrices + weights_before<Network>(T, L)};
  }
};

// By all threads of a block.
template <int THREADS, int T = 0, int L = 0, class Network>
DEVICE void load_network(NearWeights<Network>& near, const Source<Network>& far, const int thread) {
  if constexpr (T < Network::TOWERS) {
    typedef Layer<Network, T, L> Here;
    LayerLoad<Here, THREADS> load(far.tensors[Here::TENSOR], far.tensors[Here::TENSOR + 1], thread);
    load.store(near.template weights<T, L>(), near.biases + biases_before<Network>(T, L));
    load_network<THREADS, T + Here::LAST, Here::LAST ? 0 : L + 1>(near, far, thread);
  } else if (far.center != nullptr) {
    for (int d = thread; d < Network::OBS; d += THREADS) {
      near.center[d] = far.center[d];
      near.scale[d] = far.scale[d];
    }
  }
}
template <class Network>
DEVICE float see_entry(const NearWeights<Network>& near, const Source<Network>& far, const float x, const int d) {
  return far.center == nullptr ? x : seen(x, near.center, near.scale, d);
}

// What a crew knows of the rows of its environments, and of as many more as fill whole blocks, which nobody asks for.
template <class Network> struct Tile {
  static constexpr int LAYERS = Network::LAYERS, TOWERS = Network::TOWERS, ROWS = ENVS_PER_BLOCK * Network::AGENTS;
  static constexpr int ALL_ROWS = padded(ROWS), FIRST = Network::width(0, LAYERS), LAST = Network::width(TOWERS - 1, LAYERS);
  static constexpr int OUT = padded(FIRST > LAST ? FIRST : LAST) + 1;  // equal(swap >): equal where they meet
  alignas(16) bf16 input[ALL_ROWS * Matrix<padded(Network::OBS)>::STRIDE];
  float results[TOWERS][ALL_ROWS * OUT];

  DEVICE Matrix<padded(Network::OBS)> inputs() { return {input}; }
  DEVICE bf16* observation(const int row) { return inputs().row(row); }
  DEVICE const float* parameters(const int row) const { return results[0] + row * OUT; }
  DEVICE float value(const int row) const { return results[TOWERS - 1][row * OUT + (TOWERS == 1 ? Network::PARAMETERS : 0)]; }
};

// Puts zeros where observations have no entries.
template <class Network> DEVICE void begin_tile(const Crew crew, Tile<Network>& tile) {
  for (int m = crew.rank; m < Tile<Network>::ALL_ROWS; m += Crew::SIZE) {
    // equal(swap < 1): rows that nobody asks for; equal(swap < 2): room between rows, never read
    for (int d = m < Tile<Network>::ROWS ? Network::OBS : 0; d < padded(Network::OBS); ++d) tile.observation(m)[d] = 0.0f;
  }
}

// Two results of a hidden layer, as the next layer takes them.
template <class Network> DEVICE u32 activated(const float c, const float d) {
  return pair(activation<Network::RELU>(c), activation<Network::RELU>(d));
}
// Results (m, n) and (m, n + 1) of the last layer of tower T.
template <class Network, int T>
DEVICE void keep_results(Tile<Network>& tile, const int m, const int n, const float c, const float d) {
  constexpr int OUT = Network::width(T, Network::LAYERS);
  float* const to = tile.results[T] + m * Tile<Network>::OUT + n;
  if (n < OUT) to[0] = c;
  if (n + 1 < OUT) to[1] = d;  // equal(dropped condition): padded columns, never read
}

#ifdef __CUDACC__
// A 16 x 16 block of weights. They are constant now: without `volatile` and "memory" the compiler may prefetch them.
DEVICE void load_weights(u32 (&to)[4], const u32 address) {
  asm("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address));
}

// Layer L of tower T, and those after it, for TALL blocks of rows from `first` on. `matrices`: where all weights begin.
template <class Network, int T, int L, int TALL, int DEPTH>
DEVICE void compute_layers(Tile<Network>& tile, NearWeights<Network>& near, const u32 matrices, const int first,
                           const u32 (&left)[DEPTH][TALL][4]) {
  typedef Layer<Network, T, L> Here;
  constexpr int COLUMNS = Here::OUT_PAD / BLOCK, STRIDE = Matrix<Here::IN_PAD>::STRIDE;
  // Halves of a block, of its columns and of its rows, that anybody asks for.
  constexpr int WIDE = Here::LAST && Here::OUT <= BLOCK / 2 ? 1 : 2, HIGH = Tile<Network>::ROWS <= BLOCK / 2 ? 1 : 2;
  const float* const biases = near.biases + biases_before<Network>(T, L);
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
    UNROLL for (int half = 0; half < WIDE; ++half) {
      const int n = BLOCK * column + 8 * half + 2 * t;
      const float bias = biases[n], next_bias = biases[n + 1];
      UNROLL for (int i = 0; i < TALL; ++i) {
        UNROLL for (int lower = 0; lower < HIGH; ++lower) {
          const float c = sum[i][half][2 * lower] + bias, d = sum[i][half][2 * lower + 1] + next_bias;
          if constexpr (Here::LAST) keep_results<Network, T>(tile, first + BLOCK * i + 8 * lower + g, n, c, d);
          else outputs[column][i][2 * half + lower] = activated<Network>(c, d);
        }
      }
    }
  }
  if constexpr (!Here::LAST) compute_layers<Network, T, L + 1>(tile, near, matrices, first, outputs);
}

// Parameters and values of all rows; sync before and after. The towers of all policies are split among the crew's warps.
template <class Network>
DEVICE void forward(const Crew crew, Tile<Network>& tile, NearWeights<Network>& near, const Source<Network>&) {
  constexpr int DEPTH = padded(Network::OBS) / BLOCK, ROWS = Tile<Network>::ROWS;
  constexpr int TALL = ROWS > BLOCK && widest<Network>() <= 64 ? 2 : 1;  // two chains side by side, where registers hold them
  const int warp = WARPS_PER_CREW == 1 ? 0 : crew.rank / WARP_SIZE;
  u32 matrices = (u32)__cvta_generic_to_shared(near.matrices);
  hold(matrices);  // else the compiler would load weights before the first step, and move them out of registers again
  NO_UNROLL for (int first = 0; first < ROWS; first += BLOCK * TALL) {
    u32 left[DEPTH][TALL][4];
    UNROLL for (int k = 0; k < DEPTH; ++k) {
      UNROLL for (int i = 0; i < TALL; ++i) load_a<false>(left[k][i], tile.inputs(), first + BLOCK * i, BLOCK * k);
    }
    if (Network::FIRST_TOWER % WARPS_PER_CREW == warp) compute_layers<Network, 0, 0>(tile, near, matrices, first, left);
    if constexpr (Network::TOWERS == 2) {
      if ((Network::FIRST_TOWER + 1) % WARPS_PER_CREW == warp) compute_layers<Network, 1, 0>(tile, near, matrices, first, left);
    }
  }
}
#else
template <class Network, int T, int L>
DEVICE void compute_layers(const Team team, Tile<Network>& tile, NearWeights<Network>& near,
                           const Matrix<Layer<Network, T, L>::IN_PAD> inputs) {
  typedef Layer<Network, T, L> Here;
  constexpr int ROWS = Tile<Network>::ALL_ROWS;
  const float* const biases = near.biases + biases_before<Network>(T, L);
  alignas(16) bf16 numbers[ROWS * Matrix<Here::OUT_PAD>::STRIDE];
  const Matrix<Here::OUT_PAD> outputs{numbers};
  for (int m : team.each(ROWS)) {
    float sum[Here::OUT_PAD] = {};
    add_row<Here::OUT_PAD, Here::IN_PAD, true>(sum, m, inputs, near.template weights<T, L>());
    for (int n = 0; n < Here::OUT_PAD; n += 2) {
      const float c = sum[n] + biases[n], d = sum[n + 1] + biases[n + 1];
      if constexpr (Here::LAST) keep_results<Network, T>(tile, m, n, c, d);
      else outputs.two(m, n) = activated<Network>(c, d);
    }
  }
  if constexpr (!Here::LAST) compute_layers<Network, T, L + 1>(team, tile, near, outputs);
}

// As above; a thread of a crew takes rows of its own through all layers.
template <class Network>
DEVICE void forward(const Crew crew, Tile<Network>& tile, NearWeights<Network>& near, const Source<Network>&) {
  const Team team{crew.rank};
  compute_layers<Network, 0, 0>(team, tile, near, tile.inputs());
  if constexpr (Network::TOWERS == 2) compute_layers<Network, 1, 0>(team, tile, near, tile.inputs());
}
#endif

}  // namespace policy
