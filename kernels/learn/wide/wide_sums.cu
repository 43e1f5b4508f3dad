// wide_sums.cu -- Weight gradients of a wide network: sums over the rows that wide_gradient.cu has stored.
//
// Each layer's weights are cut into tiles of MOST_OUT x MOST_IN and smaller ones beside them. A block has a tile, or two small
// ones, whose accumulators are in its registers: a unit of the work. The rows are divided into call.learn.splits splits.
// Element e is split e / UNITS of unit e % UNITS.
// Constants: ROWS, as in wide_gradient.cu, MOST_OUT, MOST_IN, SLAB (rows of a stage), multiples of 16, STAGES (in shared memory).
// call: kernel arguments (drive/launch.cuh).
#include "learn/wide/wide_rows.cuh"
#include "learn/loss.cuh"
#include "learn/wide/pipeline.cuh"

// Tiles of a layer that have the same size, OUT x IN. Those at the end of rows or columns (bools) are smaller.
template <class Layer, bool LAST_OUT, bool LAST_IN> struct Tiles {
  typedef Layer Here;
  static constexpr int FULL_OUT = Here::OUT_PAD / MOST_OUT, REST_OUT = Here::OUT_PAD % MOST_OUT;
  static constexpr int FULL_IN = Here::IN_PAD / MOST_IN, REST_IN = Here::IN_PAD % MOST_IN;
  static constexpr int OUT = LAST_OUT ? REST_OUT : MOST_OUT, IN = LAST_IN ? REST_IN : MOST_IN;
  static constexpr int ACROSS = LAST_IN ? REST_IN > 0 : FULL_IN, COUNT = (LAST_OUT ? REST_OUT > 0 : FULL_OUT) * ACROSS;
  static constexpr bool SMALL = 4 * OUT * IN <= MOST_OUT * MOST_IN;

  // First row and first column of tile k.
  static DEVICE int row(const int k) { return LAST_OUT ? FULL_OUT * MOST_OUT : k / ACROSS * MOST_OUT; }
  static DEVICE int column(const int k) { return LAST_IN ? FULL_IN * MOST_IN : k % ACROSS * MOST_IN; }
};
template <class Tiles> constexpr int count_of(const bool small) { return Tiles::SMALL == small ? Tiles::COUNT : 0; }
template <class Here = Layer<0, 0>> constexpr int count_tiles(const bool small) {
  int count = count_of<Tiles<Here, false, false>>(small) + count_of<Tiles<Here, false, true>>(small) +
              count_of<Tiles<Here, true, false>>(small) + count_of<Tiles<Here, true, true>>(small);
  if constexpr (Here::NUMBER + 1 < TOWERS * LAYERS) count += count_tiles<typename Here::Next>(small);
  return count;
}
constexpr int LARGE_TILES = count_tiles(false), SMALL_TILES = count_tiles(true), UNITS = LARGE_TILES + (SMALL_TILES + 1) / 2;

struct Workspace { alignas(16) bf16 slabs[STAGES][SLAB * (MOST_OUT + MOST_IN + 2 * SKEW)]; };

// Bits of SLAB rows of N entries of an observation. A thread loads its own, and stores them a stage later.
template <int N> struct BitsAhead {
  static constexpr int ACROSS = N / 16, COUNT = SLAB / 2 * ACROSS;  // words of a BitPairs
  u32 of[own_count(COUNT)];

  // first: first row. n: first entry. If not `there`, bits are 0.
  DEVICE void load(const Team team, const WideLearn& call, const int first, const bool there, const int n) {
    FOR_OWN(team, k, i, COUNT) {
      const int row = first + i / ACROSS * 2, entry = n + i % ACROSS * 16;
      const auto bits_of = [&](int row) INLINED {
        // mutant(swap &&): numbers that are multiplied by 0
        return there && row < call.count ? (u32)((const HalfWord*)call.rows)[(size_type)row * (2 * OBS_WORDS) + entry / 16] : 0u;
      };
      of[k] = bits_of(row) | bits_of(row + 1) << 16;
    }
  }
  DEVICE void store(const Team team, const BitPairs<N> to) const {
    FOR_OWN(team, k, i, COUNT) to.word(i / ACROSS, i % ACROSS) = of[k];
  }
};

// Compute split `number` of the tile that begins at (m, n) of a layer's weights.
template <class Tiles>
DEVICE void sum_tile(const WideLearn& call, const Team team, Workspace& work, const int number, const int m, const int n) {
  typedef typename Tiles::Here Here;
  constexpr int T = Here::NUMBER / LAYERS, L = Here::NUMBER % LAYERS, M = Tiles::OUT, N = Tiles::IN;
  const bf16* const out_grad = rows_of_gradients<T, L>(call);
  const bf16* const inputs = rows_of_inputs<T, L>(call);
  const int slabs = (call.count + SLAB - 1) / SLAB, splits = call.learn.splits;  // mutant(swap -): a slab without rows
  const int begin = split_begin(number, slabs, splits), end = split_begin(number + 1, slabs, splits);
  const auto left = [&](int slab) INLINED { return Matrix<M>{work.slabs[(slab - begin) % STAGES]}; };
  constexpr bool BITS = L == 0 && STORES_BITS;
  const auto right = [&](int slab) INLINED {
    bf16* const at = work.slabs[(slab - begin) % STAGES] + SLAB * (M + SKEW);
    if constexpr (BITS) return BitPairs<N>{(Word*)at};
    else return Matrix<N>{at};
  };
  BitsAhead<BITS ? N : 16> bits;
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
        copy_async(left(slab).row(i / (M / 8)) + k, out_grad + (size_type)row * Here::OUT_PAD + m + k, row < call.count);
      }
      if constexpr (!BITS) {
        for (int i : team.each(SLAB * N / 8)) {
          const int row = slab * SLAB + i / (N / 8), k = i % (N / 8) * 8;
          copy_async(right(slab).row(i / (N / 8)) + k, inputs + (size_type)row * Here::IN_PAD + n + k, row < call.count);
        }
      }
    }
    commit_stage();  // mutant(dropped statement): a CPU copies immediately
  };
  TiledAccumulator<M, N, BITS> sums;
  sums.clear();
  // Main loop: STAGES - 1 stages are in flight.
  for (int k = 0; k < STAGES - 1; ++k) load(begin + k);  // mutant(swap <): loads a stage twice
  for (int slab = begin; slab < end; ++slab) {
    wait_stages<STAGES - 2>();  // mutant(swap -, dropped statement): a CPU copies immediately
    team.sync();  // all copies of this stage are complete, and all threads have read the stage that the next load overwrites
    load(slab + STAGES - 1);
    sums.template add<SLAB>(team, left(slab), right(slab), n == 0);  // mutant(swap ==): a CPU always adds columns
  }
  // Epilogue: store the accumulators, or add them to the gradients of earlier rows.
  float* const gradient = call.learn.partial_sums + (size_type)number * GRADIENT_FLOATS + before(GRADIENT, T, L);
  const auto put = [&](float& to, float sum) INLINED { to = call.adds ? to + sum : sum; };
  constexpr float SCALE = BITS ? 0.5f : 1.0f;
  sums.each(team, [&](int i, int j, float c, float d) INLINED {
    if (m + i >= Here::OUT) return;
    float* const to = gradient + (m + i) * Here::IN_PAD + n + j;
    put(to[0], c * SCALE);
    put(to[1], d * SCALE);
  });
  if (n > 0) return;
  sums.each_column(team, [&](int i, float sum) INLINED { put(gradient[Here::OUT * Here::IN_PAD + m + i], sum); });
}

// Call visit(tiles, m, n): tile k of the small or the large ones is one of `tiles` and begins at (m, n) of its layer's weights.
template <bool OF_SMALL, class Here = Layer<0, 0>, bool LAST_OUT = false, bool LAST_IN = false, class Visit>
DEVICE void visit_tile(const int k, Visit visit) {
  typedef Tiles<Here, LAST_OUT, LAST_IN> These;
  constexpr int COUNT = count_of<These>(OF_SMALL);
  if constexpr (COUNT > 0) {  // mutant(swap >): more code, never run
    if (k < COUNT) return visit(These{}, These::row(k), These::column(k));
  }
  if constexpr (!LAST_IN) visit_tile<OF_SMALL, Here, LAST_OUT, true>(k - COUNT, visit);
  else if constexpr (!LAST_OUT) visit_tile<OF_SMALL, Here, true, false>(k - COUNT, visit);
  else if constexpr (Here::NUMBER + 1 < TOWERS * LAYERS) visit_tile<OF_SMALL, typename Here::Next>(k - COUNT, visit);
}

DEVICE void sum_split(const WideLearn& call, const Team team, Workspace& work, const int e) {
  if (*call.learn.skip > 0.0f) return;
  const int number = e / UNITS, unit = e % UNITS;
  const auto sum = [&](auto tiles, int m, int n) INLINED { sum_tile<decltype(tiles)>(call, team, work, number, m, n); };
  if (unit < LARGE_TILES) {
    visit_tile<false>(unit, sum);
  } else {
    const int first = 2 * (unit - LARGE_TILES);
    NO_UNROLL for (int k = first; k < first + 2 && k < SMALL_TILES; ++k) {
      team.sync();  // the previous tile is read before it is overwritten
      visit_tile<true>(k, sum);
    }
  }
  // The blocks of the last unit also add up the reported metrics.
  if (unit != UNITS - 1) return;  // mutant(swap !=): all others store the same
  float* const sums = call.learn.partial_sums + (size_type)(number + 1) * GRADIENT_FLOATS - METRICS;
  const int row_tiles = (call.count + ROWS - 1) / ROWS * TOWERS;
  for (int k : team.each(REPORTED)) {
    float sum = call.adds ? sums[k] : 0.0f;
    for (int i = number; i < row_tiles; i += call.learn.splits) sum += call.reported[(size_type)i * METRICS + k];
    sums[k] = sum;
  }
}

#define BUSY_THREADS (2 * TEAM)  // per SM: two blocks, so that one runs while the other waits
#include "drive/launch.cuh"
KERNEL(wide_sums, WideLearn, UNITS * call.learn.splits, sum_split(call, team, *work, e))
