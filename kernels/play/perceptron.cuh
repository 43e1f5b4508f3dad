// perceptron.cuh -- the forward pass of a perceptron for a few rows, by the threads of one crew, from weights that are near.
//
// The bits are those of learn/network.cuh: each output is one chain of fused multiply-adds in ascending order, from the bias on.
// There many rows share a block's threads; here a warp has the rows of its own few environments and waits for nobody else.
//
// A Network is generated: OBS, PARAMETERS, TOWERS, LAYERS, RELU, width(tower, layer), AGENTS (rows of one environment), and
// COPIED (numbers of `copies`, as network.cuh has them).
#pragma once
#include "learn/neuron.cuh"

namespace policy {

constexpr int PAD = 16;          // rows of `copies` begin at multiples of it
constexpr int MOST_CHAINS = 32;  // that one thread adds up side by side, in registers

constexpr int padded(int n) { return (n + PAD - 1) / PAD * PAD; }
constexpr int divided_up(int n, int by) { return (n + by - 1) / by; }
constexpr int at_most(int n, int most) { return n < most ? n : most; }
constexpr int at_least(int n, int least) { return n > least ? n : least; }

// Numbers from one row of a tile to the next: whole pieces of 16 bytes, an odd number of them, so that eight lanes that read
// eight rows touch each of the 32 banks of shared memory once.
constexpr int stride(int n) { return (divided_up(n, 4) | 1) * 4; }

// Some numbers side by side, that are read at once.
template <int N> struct alignas(4 * N) Pack { float of[N]; };

template <class Network, int T, int L> struct Layer {
  static constexpr int IN = Network::width(T, L), OUT = Network::width(T, L + 1), OUT_PAD = padded(OUT);
  static constexpr int NUMBERS = (IN + 1) * OUT_PAD;  // weights, transposed: (IN, padded OUT), then biases
  static constexpr bool FIRST = L == 0, LAST = L == Network::LAYERS - 1;
};

// Where the weights of a layer begin: in `copies`, where those that gradients need stand between them; or one after the other.
template <class Network, int T, int L> constexpr int weights_before(const bool in_copies) {
  if constexpr (T == 0 && L == 0) {
    return 0;
  } else {
    constexpr int OF = L == 0 ? T - 1 : T, BEFORE = L == 0 ? Network::LAYERS - 1 : L - 1;
    typedef Layer<Network, OF, BEFORE> Previous;
    const int own = in_copies && !Previous::FIRST ? Previous::OUT * padded(Previous::IN) : 0;
    return weights_before<Network, OF, BEFORE>(in_copies) + Previous::NUMBERS + own;
  }
}

// Where a network's weights are.
template <class Network> struct Source {
  const float* copies;  // what learn/update.cu lays out
  const float* center;  // (OBS) or null: observations are normalised
  const float* scale;   // (OBS)
};

// Copies of them in shared memory.
template <class Network> struct Weights {
  static_assert(weights_before<Network, Network::TOWERS, 0>(true) == Network::COPIED, "copies are laid out in another way");
  alignas(16) float layers[weights_before<Network, Network::TOWERS, 0>(false)];
  float center[Network::OBS], scale[Network::OBS];
};

// Copies COUNT numbers, a multiple of four, by all threads of a block: many loads at once.
template <int COUNT> DEVICE void copy_numbers(float* to, const float* from, const int thread, const int threads) {
  constexpr int AT_ONCE = 8;
  for (int first = thread; first < COUNT / 4; first += AT_ONCE * threads) {
    Pack<4> kept[AT_ONCE];
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      if (first + k * threads < COUNT / 4) kept[k] = ((const Pack<4>*)from)[first + k * threads];
    }
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      if (first + k * threads < COUNT / 4) ((Pack<4>*)to)[first + k * threads] = kept[k];
    }
  }
}
template <class Network, int T = 0, int L = 0>
DEVICE void load_network(Weights<Network>& near, const Source<Network>& far, const int thread, const int threads) {
  if constexpr (T < Network::TOWERS) {
    copy_numbers<Layer<Network, T, L>::NUMBERS>(near.layers + weights_before<Network, T, L>(false),
                                                far.copies + weights_before<Network, T, L>(true), thread, threads);
    constexpr bool LAST = L == Network::LAYERS - 1;
    load_network<Network, T + LAST, LAST ? 0 : L + 1>(near, far, thread, threads);
  } else if (far.center != nullptr) {
    for (int d = thread; d < Network::OBS; d += threads) {
      near.center[d] = far.center[d];
      near.scale[d] = far.scale[d];
    }
  }
}
template <class Network> DEVICE Source<Network> source_of(Weights<Network>& near, const Source<Network>& far) {
  if (far.center == nullptr) return {near.layers, nullptr, nullptr};
  return {near.layers, near.center, near.scale};
}
template <class Elsewhere, class Network> DEVICE Source<Network> source_of(Elsewhere&, const Source<Network>& far) { return far; }

// What a crew knows of the rows of its environments: observations as the network sees them, and outputs of layers.
template <class Network> struct Tile {
  static constexpr int LAYERS = Network::LAYERS, TOWERS = Network::TOWERS, ROWS = ENVS_PER_BLOCK * Network::AGENTS;
  static constexpr int widest(const int from) {
    int most = 0;
    for (int t = 0; t < TOWERS; ++t) {
      for (int l = from; l < LAYERS; l += 2) most = at_least(most, Network::width(t, l));
    }
    return most;
  }
  // What layers read and write lies in two places by turns. All towers read the observations.
  static constexpr int EVEN = stride(widest(2)), ODD = stride(widest(1));
  static constexpr int OUT = stride(at_least(Network::width(0, LAYERS), Network::width(TOWERS - 1, LAYERS)));
  alignas(16) float input[ROWS * stride(Network::OBS)];
  alignas(16) float odd[TOWERS][LAYERS > 1 ? ROWS * ODD : 4];
  alignas(16) float even[TOWERS][LAYERS > 2 ? ROWS * EVEN : 4];
  alignas(16) float output[TOWERS][ROWS * OUT];

  DEVICE float* observation(const int row) { return input + row * stride(Network::OBS); }
  DEVICE const float* parameters(const int row) const { return output[0] + row * OUT; }
  DEVICE float value(const int row) const { return output[TOWERS - 1][row * OUT + (TOWERS == 1 ? Network::PARAMETERS : 0)]; }
  // What layer l reads, and what the one before it has written.
  template <int L> DEVICE float* numbers(const int tower) {
    if constexpr (L == 0) return input;
    else if constexpr (L == LAYERS) return output[tower];
    else if constexpr (L % 2 == 1) return odd[tower];
    else return even[tower];
  }
  template <int L> static constexpr int numbers_stride() { return L == 0 ? stride(Network::OBS) : L == LAYERS ? OUT : L % 2 == 1 ? ODD : EVEN; }
};

// Layer L of all towers. A part of the work, one thread's, is DOWN rows by ACROSS columns of one tower.
template <class Network, int L> struct Parts {
  typedef Layer<Network, 0, L> First;
  typedef Layer<Network, Network::TOWERS - 1, L> Last;  // of as many inputs, and where L is no tower's last layer, of as many outputs
  static constexpr int ROWS = Tile<Network>::ROWS, CHAINS = divided_up(ROWS * (First::OUT + Last::OUT * (Network::TOWERS - 1)), Crew::SIZE);
  static constexpr int ACROSS = First::OUT < PAD || CHAINS == 1 ? 1 : CHAINS < 4 ? 2 : 4;
  static constexpr int MOST_DOWN = at_most(ROWS, at_least(1, at_most(CHAINS, MOST_CHAINS) / ACROSS));
  static constexpr int ACROSS_ALL = divided_up(ROWS, MOST_DOWN);       // parts of a column
  static constexpr int DOWN = divided_up(ROWS, ACROSS_ALL);
  static constexpr bool WHOLE = ROWS % DOWN == 0;                      // whether no part has fewer rows
  static constexpr int FIRST_COLUMNS = divided_up(First::OUT, ACROSS);  // parts of a row, of the first tower
  static constexpr int COLUMNS = FIRST_COLUMNS + (Network::TOWERS == 2 ? divided_up(Last::OUT, ACROSS) : 0);
};

template <class Network, int L> DEVICE void compute_layer(const Crew crew, Tile<Network>& tile, const float* layers) {
  typedef Parts<Network, L> Part;
  typedef typename Part::First First;
  typedef typename Part::Last Last;
  typedef Tile<Network> Rows;
  constexpr int ROWS = Part::ROWS, DOWN = Part::DOWN, ACROSS = Part::ACROSS, IN = First::IN, SECOND = Network::TOWERS - 1;
  constexpr int IN_STRIDE = Rows::template numbers_stride<L>(), OUT_STRIDE = Rows::template numbers_stride<L + 1>();
  for (int part = crew.rank; part < Part::COLUMNS * Part::ACROSS_ALL; part += Crew::SIZE) {
    const int column = part % Part::COLUMNS, m = part / Part::COLUMNS * DOWN;
    const bool second = SECOND && column >= Part::FIRST_COLUMNS;
    const int n = (column - (second ? Part::FIRST_COLUMNS : 0)) * ACROSS, wide = second ? Last::OUT_PAD : First::OUT_PAD;
    const float* const from = tile.template numbers<L>(second);
    float* const to = tile.template numbers<L + 1>(second) + m * OUT_STRIDE + n;
    const float* const weights = layers + n + (second ? weights_before<Network, SECOND, L>(!WEIGHTS_NEAR) : weights_before<Network, 0, L>(!WEIGHTS_NEAR));
    const float* rows[DOWN];  // in a part that is not whole the last one stands for those that are missing
    float sum[DOWN][ACROSS];
    const Pack<ACROSS> biases = *(const Pack<ACROSS>*)(weights + IN * wide);
    UNROLL for (int i = 0; i < DOWN; ++i) {
      rows[i] = from + (Part::WHOLE ? m + i : math::min(m + i, ROWS - 1)) * IN_STRIDE;
      UNROLL for (int j = 0; j < ACROSS; ++j) sum[i][j] = biases.of[j];
    }
    const auto add = [&](const int k, const float (&factor)[DOWN]) INLINED {
      const Pack<ACROSS> weight = *(const Pack<ACROSS>*)(weights + k * wide);
      UNROLL for (int i = 0; i < DOWN; ++i) {
        UNROLL for (int j = 0; j < ACROSS; ++j) sum[i][j] = math::fma(factor[i], weight.of[j], sum[i][j]);
      }
    };
    UNROLL_TIMES(DOWN * ACROSS <= 4 ? 8 : DOWN * ACROSS <= 8 ? 4 : 2) for (int k = 0; k < IN / 4; ++k) {
      Pack<4> four[DOWN];
      UNROLL for (int i = 0; i < DOWN; ++i) four[i] = ((const Pack<4>*)rows[i])[k];
      UNROLL for (int q = 0; q < 4; ++q) {
        float factor[DOWN];
        UNROLL for (int i = 0; i < DOWN; ++i) factor[i] = four[i].of[q];
        add(4 * k + q, factor);
      }
    }
    UNROLL for (int k = IN / 4 * 4; k < IN; ++k) {
      float factor[DOWN];
      UNROLL for (int i = 0; i < DOWN; ++i) factor[i] = rows[i][k];
      add(k, factor);
    }
    UNROLL for (int i = 0; i < DOWN; ++i) {
      if (!Part::WHOLE && m + i >= ROWS) continue;
      UNROLL for (int j = 0; j < ACROSS; ++j) to[i * OUT_STRIDE + j] = sum[i][j];  // j may be beyond the last output, but not OUT_STRIDE
    }
    if constexpr (!First::LAST) {  // in a loop of its own, which is short code: what one thread has written it may read
      UNROLL_TIMES(ACROSS <= 2 ? 4 : 2) for (int i = 0; i < DOWN; ++i) {
        if (!Part::WHOLE && m + i >= ROWS) break;
        UNROLL for (int j = 0; j < ACROSS; ++j) to[i * OUT_STRIDE + j] = activation<Network::RELU>(to[i * OUT_STRIDE + j]);
      }
    }
  }
}

template <class Network, int L = 0> DEVICE void forward_from(const Crew crew, Tile<Network>& tile, const float* layers) {
  if constexpr (L < Network::LAYERS) {
    compute_layer<Network, L>(crew, tile, layers);
    crew.sync();
    forward_from<Network, L + 1>(crew, tile, layers);
  }
}

// Parameters and values of all rows, whose observations the whole crew can see. Afterwards it can see the results.
template <class Network> DEVICE void forward(const Crew crew, Tile<Network>& tile, const float* layers) {
  forward_from<Network>(crew, tile, layers);
}

}  // namespace policy
