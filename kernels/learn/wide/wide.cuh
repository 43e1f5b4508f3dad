// wide.cuh -- Forward and backward passes on tensor cores, for networks whose weights exceed a block's shared memory.
//
// A block has ROWS rows (a power of two, at least 16) of one tower in shared memory. Weights come from the L2 cache, packed as
// `fragments`: bfloat16 in the order of B fragments, so that a warp loads an MMA tile of 16 x 16 as 16 bytes per lane. Those of all
// layers for forward passes come first. For backward passes the transposed weights follow, of all layers but the first ones.
//
// Observations of bits stay bits in shared memory (bit_operands.cuh).
#pragma once
#include "learn/wide/bit_operands.cuh"
#if OBSERVED == OBSERVED_BITS
#define OBS_ENTRIES (2 * BitRows::STRIDE)
#endif
#include "learn/mma/tensor.cuh"

// ---- weights as fragments ----

constexpr int LANE_ELEMENTS = 8;  // elements of an MMA tile (16 x 16) in one lane

// Offset in `fragments` of layer (tower, layer), for forward or backward passes.
constexpr int fragments_before(const bool forward, const int tower, const int layer) {
  int sum = forward ? 0 : fragments_before(true, TOWERS, 0);
  for (int t = 0; t <= tower && t < TOWERS; ++t) {  // mutant(swap <): beyond the last tower, layer is 0
    for (int l = 0; l < (t < tower ? LAYERS : layer); ++l) {
      if (forward || l > 0) sum += padded(WIDTH[t][l]) * padded(WIDTH[t][l + 1]);
    }
  }
  return sum;
}
// mutant(constant): no further tower exists
constexpr int FORWARD_FRAGMENTS = fragments_before(true, TOWERS, 0), FRAGMENTS = fragments_before(false, TOWERS, 0);

// Index of element (k, n) of a B operand with K rows. In the tile at (k, n), lane 4 (n % 8) + k % 8 / 2 has k and k + 1, then those
// 8 further in k, then the same 8 further in n.
template <int K> DEVICE int place_of(const int k, const int n) {
  const int block = n / 16 * (K / 16) + k / 16, lane = n % 8 * 4 + k % 8 / 2, word = n % 16 / 8 * 2 + k % 16 / 8;
  return block * 256 + lane * LANE_ELEMENTS + word * 2 + k % 2;
}

// Weights of a network as kernels read them.
struct Weights {
  const float* const* tensors;  // the network's own memory, for biases
  const bf16* fragments;

  template <class Here> DEVICE const bf16* forward(Here) const {
    return fragments + fragments_before(true, Here::NUMBER / LAYERS, Here::NUMBER % LAYERS);
  }
  template <class Here> DEVICE const bf16* backward(Here) const {
    return fragments + fragments_before(false, Here::NUMBER / LAYERS, Here::NUMBER % LAYERS);
  }
  template <class Here> DEVICE float bias(Here, const int n) const {
    return n < Here::OUT ? tensors[2 * Here::NUMBER + 1][n] : 0.0f;
  }
};

// ---- products ----

#ifdef __CUDACC__
// Number of warps among which the rows of `rows` x `columns` blocks of 16 x 16 are divided, and the columns among the others. If
// possible, a warp has `tall` blocks of rows, which share each B fragment that it loads.
constexpr int row_warps(const int rows, const int columns, const int tall) {
  int warps = 1;
  while (warps < rows && warps < WARPS && (rows / warps > tall || WARPS / warps > columns)) warps *= 2;
  return warps;
}
// The same for an A operand. A warp expands bits for all of its columns, so it has more columns and fewer rows.
template <int COLUMNS> constexpr int tallest(Matrix<COLUMNS>) { return 4; }
constexpr int tallest(BitRows) { return 2; }

// Multiply. The epilogue finish(m, n, c, d) is called for all m in [0, M) and even n in [0, N). c is start(n) plus the sum over k
// in [0, K) of a(m, k) b(k, n), and d is that of column n + 1. b: fragments.
template <int M, int N, int K, class Left, class Start, class Finish>
DEVICE void wide_product(const Team team, const Left a, const bf16* b, Start start, Finish finish) {
  constexpr int BLOCKS = N / 16, DEPTH = K / 16, ROW_WARPS = row_warps(M / 16, BLOCKS, tallest(Left{}));
  constexpr int COLUMN_WARPS = WARPS / ROW_WARPS;
  constexpr int TALL = M / 16 / ROW_WARPS, EACH = (BLOCKS + COLUMN_WARPS - 1) / COLUMN_WARPS, ROUNDS = (EACH + 3) / 4;
  constexpr int WIDE = (EACH + ROUNDS - 1) / ROUNDS;  // blocks of columns at once
  constexpr int AHEAD = TALL * WIDE >= 16 || WIDE > TALL ? 2 : TALL * WIDE >= 8 ? 3 : 4, STAGES = DEPTH < AHEAD ? DEPTH : AHEAD;
  const int warp = team.rank / WARP_SIZE, lane = team.rank % WARP_SIZE, g = lane / 4, t = lane % 4;
  const int first = warp % ROW_WARPS * TALL * 16;
  NO_UNROLL for (int round = 0; round < ROUNDS; ++round) {
    const int column = (round * COLUMN_WARPS + warp / ROW_WARPS) * WIDE;
    if (BLOCKS % (COLUMN_WARPS * WIDE) != 0 && column >= BLOCKS) break;
    uint4 right[STAGES][WIDE];  // prefetched STAGES steps before their use
    const auto load = [&](uint4(&to)[WIDE], const int k) {
      UNROLL for (int j = 0; j < WIDE; ++j) {
        const int block = BLOCKS % WIDE == 0 || column + j < BLOCKS ? column + j : BLOCKS - 1;
        to[j] = __ldg((const uint4*)b + (block * DEPTH + k) * WARP_SIZE + lane);
      }
    };
    // Fill the pipeline, and initialize the accumulators.
    UNROLL for (int s = 0; s < STAGES; ++s) load(right[s], s);
    float sum[TALL][WIDE][2][4];
    UNROLL for (int j = 0; j < WIDE; ++j) {
      UNROLL for (int half = 0; half < 2; ++half) {
        const int n = (column + j) * 16 + 8 * half + 2 * t;
        const float c = start(n), d = start(n + 1);
        UNROLL for (int i = 0; i < TALL; ++i) {
          float(&of)[4] = sum[i][j][half];
          of[0] = of[2] = c;
          of[1] = of[3] = d;
        }
      }
    }
    // Main loop: each step multiplies one stage and prefetches into it.
    NO_UNROLL for (int from = 0; from < DEPTH; from += STAGES) {
      UNROLL for (int s = 0; s < STAGES; ++s) {
        const int k = from + s;
        if (DEPTH % STAGES != 0 && k >= DEPTH) break;
        u32 left[TALL][4];
        UNROLL for (int i = 0; i < TALL; ++i) load_a<false>(left[i], a, first + 16 * i, 16 * k);
        UNROLL for (int j = 0; j < WIDE; ++j) {
          UNROLL for (int i = 0; i < TALL; ++i) {
            mma_add(sum[i][j][0], left[i], right[s][j].x, right[s][j].y);
            mma_add(sum[i][j][1], left[i], right[s][j].z, right[s][j].w);
          }
        }
        if (k + STAGES < DEPTH) load(right[s], k + STAGES);
      }
    }
    // Epilogue.
    UNROLL for (int j = 0; j < WIDE; ++j) {
      if (BLOCKS % WIDE != 0 && column + j >= BLOCKS) break;
      UNROLL for (int i = 0; i < TALL; ++i) {
        UNROLL for (int half = 0; half < 2; ++half) {
          const float(&c)[4] = sum[i][j][half];
          const int n = (column + j) * 16 + 8 * half + 2 * t;
          finish(first + 16 * i + g, n, c[0], c[1]);
          finish(first + 16 * i + g + 8, n, c[2], c[3]);
        }
      }
    }
  }
}
#else
template <int M, int N, int K, class Left, class Start, class Finish>
DEVICE void wide_product(const Team team, const Left a, const bf16* b, Start start, Finish finish) {
  for (int m = 0; m < M; ++m) {
    float sum[N];
    for (int n = 0; n < N; ++n) sum[n] = start(n);
    for (int n = 0; n < N; ++n) {
      for (int k = 0; k < K; ++k) sum[n] += entry_at(a, m, k) * wide(b[place_of<K>(k, n)]);
    }
    for (int i : team.each(N / 2)) finish(m, 2 * i, sum[2 * i], sum[2 * i + 1]);
  }
}
#endif

// ---- rows of a block ----

struct NoWeights {};
template <int T> using WideTower = TowerRows<T, NoWeights>;
// Inputs of layer L as A operand.
template <int T, int L> DEVICE auto left_operand(WideTower<T>& tower) {
  if constexpr (L == 0 && STORES_BITS) return BitRows{(Word*)tower.entries};
  else return tower.template inputs_of<L>();
}

// Floats of an observation that a thread loads at once. Rows are aligned to as many.
constexpr int VECTOR = OBS % 4 == 0 ? 4 : OBS % 2 == 0 ? 2 : 1;
struct alignas(TEAM > 1 ? 4 * VECTOR : 4) ObsVector { float of[VECTOR]; };

// Store the observations of all rows where `forward` reads them. row_at(m): observation of row m in memory, or null for zeros.
// Observations of bits are also passed to keep(i, word), where i counts the words of all rows.
template <int T, class RowAt, class Keep>
DEVICE void put_observations(const Team team, WideTower<T>& tower, const float* center, const float* scale, RowAt row_at,
                             Keep keep) {
  [[maybe_unused]] const auto to = tower.observations();
#if OBSERVED == OBSERVED_FLOATS
  // mutant(swap / 2): loads more before it stores
  constexpr int ACROSS = OBS / VECTOR, VECTORS = ROWS * ACROSS, OWN = own_count(VECTORS), MOST = 24 / VECTOR;
  constexpr int AT_ONCE = OWN < MOST ? OWN : MOST;  // all loads are issued before the first store
  for (int first = team.rank; first < VECTORS; first += AT_ONCE * TEAM) {
    ObsVector loaded[AT_ONCE];
    UNROLL for (int j = 0; j < AT_ONCE; ++j) {
      const int i = first + j * TEAM;
      const float* const row = i < VECTORS ? row_at(i / ACROSS) : nullptr;
      loaded[j] = row == nullptr ? ObsVector{} : *(const ObsVector*)(row + i % ACROSS * VECTOR);
    }
    UNROLL for (int j = 0; j < AT_ONCE; ++j) {
      const int i = first + j * TEAM;
      if (i >= VECTORS) continue;
      const int m = i / ACROSS, d = i % ACROSS * VECTOR;
      UNROLL for (int k = 0; k < VECTOR; ++k) loaded[j].of[k] = normalize_entry(loaded[j].of[k], center, scale, d + k);
      if constexpr (VECTOR == 1) to.row(m)[d] = loaded[j].of[0];
      UNROLL for (int k = 0; k + 1 < VECTOR; k += 2) to.two(m, d + k) = pair(loaded[j].of[k], loaded[j].of[k + 1]);
    }
  }
#elif OBSERVED == OBSERVED_BITS
  constexpr int WORDS = OBS_WORDS, COUNT = ROWS * WORDS;
  // mutant(swap ?): a CPU's thread owns more than FEW_OWN words
  constexpr int AT_ONCE = own_count(COUNT) < FEW_OWN ? own_count(COUNT) : FEW_OWN;  // all loads are issued before the first store
  for (int first = team.rank; first < COUNT; first += AT_ONCE * TEAM) {
    Observed word[AT_ONCE];
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      const int i = first + k * TEAM;
      const Observed* const row = i < COUNT ? row_at(i / WORDS) : nullptr;
      word[k] = row == nullptr ? 0u : row[i % WORDS];
    }
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      const int i = first + k * TEAM;
      if (i >= COUNT) continue;  // mutant(swap >=): a CPU's threads own equally many words
      keep(i, word[k]);
      left_operand<T, 0>(tower).row(i / WORDS)[i % WORDS] = even_bits_first(word[k]);
    }
  }
#else
  for (int i : team.each(ROWS * OBS_ACROSS)) {
    const int m = i / OBS_ACROSS, first = i % OBS_ACROSS * OBS_AT_ONCE;
    const Observed* const row = row_at(m);
    float x[OBS_AT_ONCE] = {};
    const auto put = [&](int d, float entry) INLINED { x[d - first] = normalize_entry(entry, center, scale, d); };
    if (row != nullptr) each_at_once(row, first, put);
    struct alignas(16) MAY_ALIAS Eight { u32 pairs[4]; } eight;
    UNROLL for (int j = 0; j < 4; ++j) eight.pairs[j] = pair(x[2 * j], x[2 * j + 1]);
    *(Eight*)(to.row(m) + first) = eight;
  }
#endif
#if OBSERVED != OBSERVED_BITS
  // Clear the padding.
  for (int m : team.each(ROWS)) {
    for (int d = OBS_ACROSS * OBS_AT_ONCE; d < padded(OBS); ++d) to.row(m)[d] = 0.0f;
  }
#endif
}

// Forward pass. Calls before_last() before the last layer, and left(layer) after the sync that follows a hidden layer.
template <int T, int L = 0, class Before, class Left>
DEVICE void wide_forward(const Team team, WideTower<T>& tower, const Weights& weights, Before before_last, Left left) {
  typedef Layer<T, L> Here;
  if constexpr (Here::LAST) before_last();
  wide_product<ROWS, Here::OUT_PAD, Here::IN_PAD>(
      team, left_operand<T, L>(tower), weights.forward(Here{}), [&](int n) INLINED { return weights.bias(Here{}, n); },
      [&](int m, int n, float c, float d) INLINED {
        if constexpr (Here::LAST) { tower.results_of(m)[n] = c; tower.results_of(m)[n + 1] = d; }
        else tower.template outputs_of<L>().two(m, n) = pair(activation<RELU>(c), activation<RELU>(d));
      });
  team.sync();  // the layer's outputs are written before they are read
  if constexpr (!Here::LAST) {
    left(Here{});
    wide_forward<T, L + 1>(team, tower, weights, before_last, left);
  }
}

// Compute gradients w.r.t. the outputs of layers L - 1, ..., 0 from those of L. Calls left(layer) when a layer's are visible to
// all.
template <int T, int L = LAYERS - 1, class Left>
DEVICE void wide_backward(const Team team, WideTower<T>& tower, const Weights& weights, Left left) {
  typedef Layer<T, L> Here;
  left(Here{});
  if constexpr (L > 0) {
    const auto inputs = tower.template inputs_of<L>();
    wide_product<ROWS, Here::IN_PAD, Here::OUT_PAD>(
        team, tower.template outputs_of<L>(), weights.backward(Here{}), [](int) INLINED { return 0.0f; },
        [&](int m, int n, float c, float d) INLINED {
          Word& both = inputs.two(m, n);
          both = pair(c * activation_gradient<RELU>(first_of(both)), d * activation_gradient<RELU>(second_of(both)));
        });
    team.sync();  // activation gradients are written before they are read
    wide_backward<T, L - 1>(team, tower, weights, left);
  }
}
