// wide_sums.cu -- Weight gradients of a wide network: sums over the rows that wide_gradient.cu has stored.
//
// Each layer's weights are cut into tiles of at most MOST_OUT x MOST_IN, whose accumulators are in a block's registers. The rows
// are divided into call.learn.splits splits. Element e is split e / TILES of tile e % TILES.
// Constants: ROWS, as in wide_gradient.cu, MOST_OUT, MOST_IN, SLAB (rows of a stage), multiples of 16, STAGES (in shared memory).
// call: kernel arguments (drive/launch.cuh).
#include "learn/wide/wide_rows.cuh"
#include "learn/loss.cuh"
#include "learn/wide/pipeline.cuh"

// Number of parts into which n rows or columns are cut, and size of a part. The last part may be smaller.
constexpr int cuts(const int n, const int most) { return (n + most - 1) / most; }
constexpr int part_of(const int n, const int most) { return padded((n + cuts(n, most) - 1) / cuts(n, most)); }
constexpr int count_tiles() {
  int sum = 0;
  for (int t = 0; t < TOWERS; ++t) {
    for (int l = 0; l < LAYERS; ++l) sum += cuts(padded(WIDTH[t][l]), MOST_IN) * cuts(padded(WIDTH[t][l + 1]), MOST_OUT);
  }
  return sum;
}
constexpr int TILES = count_tiles();

struct Workspace { alignas(16) bf16 slabs[STAGES][SLAB * (MOST_OUT + MOST_IN + 2 * SKEW)]; };

// Bits of SLAB rows of N entries of an observation. A thread loads its own, and expands them a stage later.
template <int N> struct BitsAhead {
  static constexpr int ACROSS = N / 8, COUNT = SLAB * ACROSS;  // of eight entries
  u32 of[own_count(COUNT)];

  // first: first row. n: first entry. If not `there`, bits are 0.
  DEVICE void load(const Team team, const WideLearn& call, const int first, const bool there, const int n) {
    FOR_OWN(team, k, i, COUNT) {
      const int row = first + i / ACROSS, entry = n + i % ACROSS * 8;
      // mutant(swap &&): numbers that are multiplied by 0 or not stored
      const bool exists = there && row < call.count && entry < OBS;
      of[k] = exists ? ((const u32*)call.rows)[(size_type)row * OBS_WORDS + entry / 32] >> entry % 32 : 0u;
    }
  }
  DEVICE void store(const Team team, const Matrix<N> to) const {
    FOR_OWN(team, k, i, COUNT) *(Eight*)(to.row(i / ACROSS) + i % ACROSS * 8) = eight_of_bits(of[k]);
  }
};

// Compute split `number` of the tile that begins at (m, n) of a layer's weights.
template <class Here>
DEVICE void sum_tile(const WideLearn& call, const Team team, Workspace& work, const int number, const int m, const int n) {
  constexpr int T = Here::NUMBER / LAYERS, L = Here::NUMBER % LAYERS;
  constexpr int M = part_of(Here::OUT_PAD, MOST_OUT), N = part_of(Here::IN_PAD, MOST_IN);
  const bf16* const out_grad = rows_of_gradients<T, L>(call);
  const bf16* const inputs = rows_of_inputs<T, L>(call);
  const int slabs = (call.count + SLAB - 1) / SLAB, splits = call.learn.splits;  // mutant(swap -): a slab without rows
  const int begin = split_begin(number, slabs, splits), end = split_begin(number + 1, slabs, splits);
  const auto left = [&](int slab) INLINED { return Matrix<M>{work.slabs[(slab - begin) % STAGES]}; };
  const auto right = [&](int slab) INLINED { return Matrix<N>{work.slabs[(slab - begin) % STAGES] + SLAB * (M + SKEW)}; };
  constexpr bool BITS = L == 0 && STORES_BITS;
  BitsAhead<BITS ? N : 8> bits;
  const auto load_bits = [&](const int slab) INLINED { bits.load(team, call, slab * SLAB, slab < end, n); };
  if constexpr (BITS) load_bits(begin);
  // Prefetch one stage.
  const auto load = [&](const int slab) INLINED {
    if constexpr (BITS) {
      bits.store(team, right(slab));
      load_bits(slab + 1);
    }
    if (slab < end) {
      for (int i : team.each(SLAB * M / 8)) {
        const int row = slab * SLAB + i / (M / 8), k = i % (M / 8) * 8;
        const bool there = row < call.count && m + k < Here::OUT_PAD;
        copy_async(left(slab).row(i / (M / 8)) + k, out_grad + (size_type)row * Here::OUT_PAD + m + k, there);
      }
      for (int i : team.each(BITS ? 0 : SLAB * N / 8)) {
        const int row = slab * SLAB + i / (N / 8), k = i % (N / 8) * 8;
        // mutant(swap &&): likewise
        const bool there = row < call.count && n + k < Here::IN_PAD;
        copy_async(right(slab).row(i / (N / 8)) + k, inputs + (size_type)row * Here::IN_PAD + n + k, there);
      }
    }
    commit_stage();  // mutant(dropped statement): a CPU copies immediately
  };
  TiledAccumulator<M, N> sums;
  sums.clear();
  // Main loop: STAGES - 1 stages are in flight.
  for (int k = 0; k < STAGES - 1; ++k) load(begin + k);
  for (int slab = begin; slab < end; ++slab) {
    wait_stages<STAGES - 2>();  // mutant(swap -): a CPU copies immediately
    team.sync();  // all copies of this stage are complete, and all threads have read the stage that the next load overwrites
    load(slab + STAGES - 1);
    sums.template add<SLAB>(team, left(slab), right(slab), n == 0);  // mutant(swap ==): a CPU always adds columns
  }
  // Epilogue: store the accumulators, or add them to the gradients of earlier rows.
  float* const gradient = call.learn.partial_sums + (size_type)number * GRADIENT_FLOATS + before(GRADIENT, T, L);
  const auto put = [&](float& to, float sum) INLINED { to = call.adds ? to + sum : sum; };
  sums.each(team, [&](int i, int j, float c, float d) INLINED {
    if (m + i >= Here::OUT || n + j >= Here::IN_PAD) return;
    float* const to = gradient + (m + i) * Here::IN_PAD + n + j;
    put(to[0], c);
    put(to[1], d);
  });
  if (n > 0) return;
  sums.each_column(team, [&](int i, float sum) INLINED {
    // mutant(dropped condition): a CPU computes the next layer afterwards
    if (m + i < Here::OUT_PAD) put(gradient[Here::OUT * Here::IN_PAD + m + i], sum);
  });
}

// Call visit(layer, m, n): tile `e` begins at (m, n) of that layer's weights.
template <class Here = Layer<0, 0>, class Visit> DEVICE void visit_tile(const int e, Visit visit) {
  constexpr int ACROSS = cuts(Here::IN_PAD, MOST_IN), COUNT = cuts(Here::OUT_PAD, MOST_OUT) * ACROSS;
  if (e < COUNT) visit(Here{}, e / ACROSS * part_of(Here::OUT_PAD, MOST_OUT), e % ACROSS * part_of(Here::IN_PAD, MOST_IN));
  else if constexpr (Here::NUMBER + 1 < TOWERS * LAYERS) visit_tile<typename Here::Next>(e - COUNT, visit);
}

DEVICE void sum_split(const WideLearn& call, const Team team, Workspace& work, const int e) {
  if (*call.learn.skip > 0.0f) return;
  const int number = e / TILES, tile = e % TILES;
  visit_tile(tile, [&](auto layer, int m, int n) INLINED { sum_tile<decltype(layer)>(call, team, work, number, m, n); });
  // The blocks of the last tile also add up the reported metrics.
  if (tile != TILES - 1) return;  // mutant(swap !=): all others store the same
  float* const sums = call.learn.partial_sums + (size_type)(number + 1) * GRADIENT_FLOATS - METRICS;
  const int tiles = (call.count + ROWS - 1) / ROWS * TOWERS;
  for (int k : team.each(REPORTED)) {
    float sum = call.adds ? sums[k] : 0.0f;
    for (int i = number; i < tiles; i += call.learn.splits) sum += call.reported[(size_type)i * METRICS + k];
    sums[k] = sum;
  }
}

#define BUSY_THREADS (2 * TEAM)  // per SM: two blocks, so that one runs while the other waits
#include "drive/launch.cuh"
KERNEL(wide_sums, WideLearn, TILES * call.learn.splits, sum_split(call, team, *work, e))
