// tensor.cuh -- what perceptron.cuh does, by matrix units: the forward pass of learn/tensor_forward.cu, with its bits.
//
// A result is summed up in blocks of 16 factors, whatever rows are beside it, so that it has the same bits in a tile of any size.
// A Network is generated, as for perceptron.cuh.
#pragma once
#define APPROXIMATE 1
#include "learn/functions.cuh"
#include "learn/matrix_units.cuh"
#include "learn/neuron.cuh"

namespace policy {

constexpr int BLOCK = 16;  // rows and columns that matrix units take at once

constexpr int padded(int n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }

template <class Network, int T, int L> struct Layer {
  static constexpr int IN = Network::width(T, L), OUT = Network::width(T, L + 1), IN_PAD = padded(IN), OUT_PAD = padded(OUT);
  static constexpr int TENSOR = 2 * (T * Network::LAYERS + L);  // its weights; the next are its biases
  static constexpr bool LAST = L == Network::LAYERS - 1;
};

// What the layers before layer (tower, layer) take in shared memory.
template <class Network> constexpr int weights_before(const int tower, const int layer) {
  int sum = 0;
  for (int k = 0; k < tower * Network::LAYERS + layer; ++k) {
    const int t = k / Network::LAYERS, l = k % Network::LAYERS;
    sum += padded(Network::width(t, l + 1)) * (padded(Network::width(t, l)) + SKEW);
  }
  return sum;
}
template <class Network> constexpr int biases_before(const int tower, const int layer) {
  int sum = 0;
  for (int k = 0; k < tower * Network::LAYERS + layer; ++k) {
    sum += padded(Network::width(k / Network::LAYERS, k % Network::LAYERS + 1));
  }
  return sum;
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
  static constexpr int ALL_ROWS = padded(ROWS);
  static constexpr int widest() {
    int most = 0;
    for (int k = 0; k < TOWERS * LAYERS; ++k) {
      const int width = k % LAYERS == 0 ? 0 : padded(Network::width(k / LAYERS, k % LAYERS));
      most = width > most ? width : most;
    }
    return most;
  }
  static constexpr int OUT = 1 + (padded(Network::width(0, LAYERS)) > padded(Network::width(TOWERS - 1, LAYERS))
                                      ? padded(Network::width(0, LAYERS)) : padded(Network::width(TOWERS - 1, LAYERS)));
  alignas(16) bf16 input[ALL_ROWS * (padded(Network::OBS) + SKEW)];
  alignas(16) bf16 hidden[TOWERS][2][ALL_ROWS * (widest() + SKEW)];  // written by turns
  float results[TOWERS][ALL_ROWS * OUT];

  DEVICE bf16* observation(const int row) { return input + row * (padded(Network::OBS) + SKEW); }
  DEVICE const float* parameters(const int row) const { return results[0] + row * OUT; }
  DEVICE float value(const int row) const { return results[TOWERS - 1][row * OUT + (TOWERS == 1 ? Network::PARAMETERS : 0)]; }
  // What a layer reads.
  template <int T, int L> DEVICE Matrix<Layer<Network, T, L>::IN_PAD> inputs() { return {L == 0 ? input : hidden[T][L % 2]}; }
};

// Puts zeros where observations have no entries.
template <class Network> DEVICE void begin_tile(const Crew crew, Tile<Network>& tile) {
  for (int m = crew.rank; m < Tile<Network>::ALL_ROWS; m += Crew::SIZE) {
    for (int d = m < Tile<Network>::ROWS ? Network::OBS : 0; d < padded(Network::OBS); ++d) tile.observation(m)[d] = 0.0f;
  }
}

// finish(m, n, c, d) for all rows m that are asked for, some more, and even columns n of inputs times weights: c, and d of the
// next column. Of tower T: warps of a crew share its columns, and those of another tower begin with another warp.
template <class Network, class Here, int T, class Finish>
DEVICE void multiply_rows(const Crew crew, const Matrix<Here::IN_PAD> inputs, const Matrix<Here::IN_PAD> weights, Finish finish) {
  constexpr int ROWS = Tile<Network>::ROWS;
#ifdef __CUDACC__
  constexpr int CREW_WARPS = Crew::SIZE / WARP_SIZE, DEPTH = Here::IN_PAD / BLOCK, COLUMNS = Here::OUT_PAD / BLOCK;
  constexpr int TURNS = (COLUMNS + CREW_WARPS - 1) / CREW_WARPS;
  const int lane = crew.rank % WARP_SIZE, g = lane / 4, t = lane % 4;
  const int warp = (crew.rank / WARP_SIZE + T * (CREW_WARPS / 2)) % CREW_WARPS;
  for (int first = 0; first < ROWS; first += BLOCK) {
    u32 left[DEPTH][4];
    UNROLL for (int k = 0; k < DEPTH; ++k) load_left<false>(left[k], inputs, first, BLOCK * k);
    UNROLL_TIMES(TURNS <= 4 ? TURNS : 2) for (int column = warp; column < COLUMNS; column += CREW_WARPS) {
      float sum[2][4];
      UNROLL for (int k = 0; k < DEPTH; ++k) {
        u32 right[4];
        load_right<true>(right, weights, BLOCK * column, BLOCK * k);
        UNROLL for (int half = 0; half < 2; ++half) {
          if (k == 0) set_product(sum[half], left[0], right[2 * half], right[2 * half + 1]);
          else add_product(sum[half], left[k], right[2 * half], right[2 * half + 1]);
        }
      }
      UNROLL for (int half = 0; half < 2; ++half) {
        const int n = BLOCK * column + 8 * half + 2 * t;
        finish(first + g, n, sum[half][0], sum[half][1]);
        if (ROWS > 8) finish(first + g + 8, n, sum[half][2], sum[half][3]);
      }
    }
  }
#else
  product<Tile<Network>::ALL_ROWS, Here::OUT_PAD, Here::IN_PAD, true>(Team{crew.rank}, inputs, weights, finish);
#endif
}

template <class Network, int T, int L>
DEVICE void compute_layer(const Crew crew, Tile<Network>& tile, NearWeights<Network>& near) {
  typedef Layer<Network, T, L> Here;
  const float* const biases = near.biases + biases_before<Network>(T, L);
  const auto inputs = tile.template inputs<T, L>();
  multiply_rows<Network, Here, T>(crew, inputs, near.template weights<T, L>(), [&](int m, int n, float c, float d) INLINED {
    c += biases[n];
    d += biases[n + 1];
    if constexpr (Here::LAST) {
      float* const to = tile.results[T] + m * Tile<Network>::OUT + n;
      to[0] = c;
      to[1] = d;
    } else {
      if constexpr (Network::RELU) {
        c = activation<true>(c);
        d = activation<true>(d);
      } else {
        c = hyperbolic_tangent(c);
        d = hyperbolic_tangent(d);
      }
      tile.template inputs<T, L + 1>().two(m, n) = pair(c, d);
    }
  });
}

template <class Network, int L = 0> DEVICE void forward_from(const Crew crew, Tile<Network>& tile, NearWeights<Network>& near) {
  if constexpr (L < Network::LAYERS) {
    compute_layer<Network, 0, L>(crew, tile, near);
    if constexpr (Network::TOWERS == 2) compute_layer<Network, 1, L>(crew, tile, near);
    crew.sync();
    forward_from<Network, L + 1>(crew, tile, near);
  }
}

// Parameters and values of all rows, whose observations the whole crew can see. Afterwards it can see the results.
template <class Network>
DEVICE void forward(const Crew crew, Tile<Network>& tile, NearWeights<Network>& near, const Source<Network>&) {
  forward_from<Network>(crew, tile, near);
}

}  // namespace policy
