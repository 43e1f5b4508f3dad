// network.cuh -- Forward and backward passes of the towers in exact float32. Constants: those of layers.cuh, TILE (rows at once).
#pragma once
#include "learn/exact/multiply.cuh"
#include "learn/layers.cuh"
#include "learn/observed.cuh"
#if ALONE && !defined(COUNT_OPERATIONS)
#define SKIPS 1  // skip zeros of observations
#include "learn/exact/skipping.cuh"
#else
#define SKIPS 0
#endif

constexpr int TILE_FLOATS = TILE * before(OUTPUTS, TOWERS, 0);

// On a GPU some threads compute a layer's weight gradient while others compute the gradient w.r.t. its inputs. The latter must not
// overwrite memory that the former reads. Gradients w.r.t. inputs therefore alternate between two buffers: spare memory, and the
// outputs of the following layer, if these are wide enough. A single thread computes one after the other, in place.
constexpr bool BESIDE = TEAM > 1;
constexpr int widest_hidden() {
  int most = 0;  // mutant(swap = 0;): more room, never read
  for (int t = 0; t < TOWERS; ++t) {
    for (int l = 1; l < LAYERS; ++l) most = padded(WIDTH[t][l]) > most ? padded(WIDTH[t][l]) : most;
  }
  return most;
}
constexpr int SPARE = BESIDE ? widest_hidden() : 0;
constexpr bool widths_fit() {
  for (int t = 0; t < TOWERS; ++t) {
    if (LAYERS > 2 && padded(WIDTH[t][LAYERS - 2]) > padded(WIDTH[t][LAYERS - 1])) return false;
  }
  return true;
}
constexpr int SPARE_FLOATS = TILE * SPARE * (widths_fit() ? 1 : 2);

constexpr int FEWEST_ENTRIES = 64;  // shortest rows whose zeros are skipped: shorter ones are multiplied faster
// Whether a layer may skip zeros.
constexpr bool skips(const int layer) { return SKIPS && turned(layer) && OBS >= FEWEST_ENTRIES; }

// Working memory of a team for TILE rows: observations, then the outputs of each layer. In the backward pass the gradients w.r.t.
// outputs replace the outputs.
struct Tile {
  alignas(16) float numbers[TILE_FLOATS];
#if SKIPS
  Marks<skips(0) ? OBS : 1> marks;
#endif

  DEVICE float* input() { return numbers; }
  template <int T, int L> DEVICE float* outputs() { return numbers + TILE * before(OUTPUTS, T, L); }
  template <int T, int L> DEVICE float* inputs() {
    if constexpr (L == 0) return numbers;
    else return outputs<T, L - 1>();
  }
  DEVICE float* parameters(int row) { return outputs<0, LAYERS - 1>() + row * padded(WIDTH[0][LAYERS]); }
  DEVICE float* value(int row) {
    if constexpr (TOWERS == 1) return parameters(row) + PARAMETERS;
    else return outputs<1, LAYERS - 1>() + row * PAD;
  }
  // Gradients w.r.t. the outputs of a layer. `spare` has SPARE_FLOATS.
  template <int T, int L> DEVICE float* gradients(float* spare) {
    constexpr int FROM_LAST = LAYERS - 1 - L;
    if constexpr (!BESIDE || FROM_LAST == 0) return outputs<T, L>();
    else if constexpr (FROM_LAST % 2 == 1) return spare;
    else if constexpr (widths_fit()) return outputs<T, L + 1>();
    else return spare + TILE * SPARE;
  }
};

// Threads that read one row's observation: one if it is short, otherwise one per entry.
constexpr int THREADS_PER_ROW = TEAM == 1 || OBS <= 8 ? 1 : OBS;  // mutant(swap <=): speed only

// Read entries d = first, first + THREADS_PER_ROW, ... of row m of a tile from an observation in memory. The thread of entry 0 adds
// the padding of zeros.
DEVICE void read_observation(Tile& tile, const int m, const int first, const Observed* obs, const float* center,
                             const float* scale) {
  float* const input = tile.input() + m * padded(OBS);
  UNROLL_TIMES(4) for (int d = first; d < OBS; d += THREADS_PER_ROW) input[d] = normalize_entry(entry_of(obs, d), center, scale, d);
  if (first == 0) for (int d = OBS; d < padded(OBS); ++d) input[d] = 0.0f;
}

// Prefetch an observation into a CPU's cache.
DEVICE void fetch_observation([[maybe_unused]] const Observed* obs) {
#if ALONE
  constexpr int LINE = 64 / sizeof(Observed);  // mutant(swap /, constant): speed only
  for (int d = 0; d < observed_row(OBS); d += LINE) __builtin_prefetch(obs + d);  // mutant(swap <, constant): speed only
#endif
}

// Return whether the weights of all first layers are finite, so that zeros may be skipped. False in builds that never skip.
DEVICE bool may_skip([[maybe_unused]] const float* packed) {
  bool finite = skips(0);
#if SKIPS
  for (int t = 0; t < TOWERS && finite; ++t) finite = all_finite(packed + before(FORWARD_PACKED, t, 0), OBS * padded(WIDTH[t][1]));
#endif
  return finite;
}
// Find the zeros in the tile's observations, before a pass. finite: result of may_skip.
DEVICE void find_zeros([[maybe_unused]] Tile& tile, [[maybe_unused]] const int rows, [[maybe_unused]] const bool finite) {
#if SKIPS
  if constexpr (skips(0)) {
    if (finite) tile.marks.find_zeros(tile.input(), rows);
    else tile.marks.few = false;
  }
#endif
}

// Copy COUNT numbers to shared memory. COUNT is a multiple of 4, and both arrays are aligned to 16 bytes.
template <int COUNT> DEVICE void copy_to_shared(const Team team, float* to, const float* from) {
  UNROLL_TIMES(8) for (int i : team.each(COUNT / 4)) {
    Four four;
    four.load(from + 4 * i);
    four.store(to + 4 * i);
  }
}

// ---- forward pass ----

// Second pass of the epilogue: applies the activation to the stored sums of a product.
template <int STRIDE, bool ACTIVATED> struct Activate {
  static constexpr bool NEEDED = TEAM > 1 && ACTIVATED;
  float* out;
  DEVICE void four(const int m, const int n) const {
    Four some;
    some.load(out + m * STRIDE + n);
    UNROLL for (float& sum : some.of) sum = activation<RELU>(sum);
    some.store(out + m * STRIDE + n);
  }
};

template <int T, int L> DEVICE void forward_from(const Team team, Tile& tile, const int rows, const float* packed) {
  if constexpr (T < TOWERS) {
    typedef Layer<T, L> Here;
    const float* const weights = packed + Here::FORWARD_BEFORE;
    const float* const biases = weights + Here::IN * Here::OUT_PAD;
    float* const out = tile.outputs<T, L>();
    bool there = false;
#if SKIPS
    if constexpr (skips(L)) there = tile.marks.few && sum_skipping<Here>(tile.marks, tile.input(), rows, weights, out);
    if (there && Here::ACTIVATED) for (int i = 0; i < rows * Here::OUT_PAD; ++i) out[i] = activation<RELU>(out[i]);
#endif
    if (!there) multiply<TILE, Here::OUT, TEAM>(
        team, rows, Here::IN, Entries<false>{tile.inputs<T, L>(), Here::IN_PAD}, weights, Here::OUT_PAD,
        [&](int, int n, auto& some) INLINED { some.load(biases + n); },
        [&](int m, int n, auto& some) INLINED {
          float* const to = out + m * Here::OUT_PAD + n;
          if constexpr (TEAM > 1 || !Here::ACTIVATED) {
            some.store(to);
          } else {
            constexpr int N = sizeof(some) / sizeof(float);
            float sums[N];
            some.store(sums);
            for (int j = 0; j < N; ++j) to[j] = activation<RELU>(sums[j]);
          }
        },
        Activate<Here::OUT_PAD, Here::ACTIVATED>{out});
    team.sync();  // the layer's outputs are written before the next layer reads them
    forward_from<T + (L == LAYERS - 1), L == LAYERS - 1 ? 0 : L + 1>(team, tile, rows, packed);
  }
}
// Compute all layers for `rows` rows. Their observations are visible to all threads of the team.
DEVICE void forward(const Team team, Tile& tile, const int rows, const float* packed) {
  forward_from<0, 0>(team, tile, rows, packed);
}

// ---- backward pass ----

// Return the team with ranks rotated by `taken` threads that already have work, so that idle threads begin with the next product.
DEVICE Team after(const Team team, const int taken) {
  Team turned = team;
  turned.rank = (team.rank + TEAM - taken % TEAM) % TEAM;  // mutant(swap -): another thread does the same work
  return turned;
}

// Destination of a tile's gradient. A team of one CPU thread adds each number to the sums of chunks and parts while it is in a
// register.
struct Sums {
  float* chunk;
  bool first;   // the chunk's first tile: its accumulators begin at 0
  // Only for a team of one CPU thread:
  bool last;    // the chunk's last tile
  float* part;  // sums of chunks
  bool part_begun, part_ends;
  float* all;   // sums of parts
  bool all_begun;

  template <class Some> DEVICE void begin(const int at, Some& some) const {
    if (first) some = {};
    else some.load(chunk + at);
  }
  template <class Some> DEVICE void end(const int at, const Some& some) const {
    if (!ALONE || !last) {
      some.store(chunk + at);
      return;
    }
    Some sum{};
    if (part_begun) sum.load(part + at);
    sum.add(some);
    if (part_ends) {
      Some total{};
      if (all_begun) total.load(all + at);
      total.add(sum);
      total.store(all + at);
    } else {
      sum.store(part + at);
    }
  }
  // Whether adding 0 leaves all sums as they are.
  DEVICE bool keep() const { return last ? first && part_begun && !part_ends : !first; }
};

// Backward pass of layer L and those before it.
template <int T, int L>
DEVICE void backward_from(const Team team, Tile& tile, float* spare, const int rows, const float* packed, const Sums& sums) {
  typedef Layer<T, L> Here;
  constexpr int MEMBERS = TEAM >= 256 && L > 0 ? TEAM / 2 : TEAM;  // threads for each of the two products
  const float* const out_grad = tile.gradients<T, L>(spare);
  const float* const inputs = tile.inputs<T, L>();
  constexpr int WEIGHTS = before(CHUNK, T, L), BIASES_AT = WEIGHTS + chunk_weights(Here::IN, Here::OUT, L);
  // Weight gradient.
  if constexpr (turned(L)) {
    bool added = false;
#if SKIPS
    if constexpr (skips(L)) added = tile.marks.few && add_skipping<Here>(tile.marks, inputs, out_grad, rows, WEIGHTS, sums);
#endif
    if (!added) {
      multiply<Here::IN, Here::OUT, MEMBERS>(
          team, Here::IN, rows, Entries<true>{inputs, Here::IN_PAD}, out_grad, Here::OUT_PAD,
          [&](int m, int n, auto& some) INLINED { sums.begin(WEIGHTS + m * Here::OUT_PAD + n, some); },
          [&](int m, int n, auto& some) INLINED { sums.end(WEIGHTS + m * Here::OUT_PAD + n, some); });
    }
  } else {
    multiply<Here::OUT, Here::IN, MEMBERS>(
        team, Here::OUT, rows, Entries<true>{out_grad, Here::OUT_PAD}, inputs, Here::IN_PAD,
        [&](int m, int n, auto& some) INLINED { sums.begin(WEIGHTS + m * Here::IN_PAD + n, some); },
        [&](int m, int n, auto& some) INLINED { sums.end(WEIGHTS + m * Here::IN_PAD + n, some); });
  }
  // Activation gradient of the previous layer.
  constexpr int TAKEN = tiles_of(Here::OUT, fours(Here::IN), MEMBERS);
  if constexpr (L > 0) {
    const float* const own = packed + Here::BACKWARD_BEFORE;
    float* const to = tile.gradients<T, L - 1>(spare);
    multiply<TILE, Here::IN, MEMBERS>(
        after(team, TAKEN), rows, Here::OUT, Entries<false>{out_grad, Here::OUT_PAD}, own, Here::IN_PAD,
        [&](int, int, auto& some) INLINED { some = {}; },
        [&](int m, int n, auto& some) INLINED {
          const int at = m * Here::IN_PAD + n;
          if constexpr (TEAM > 1) {
            Four results;
            results.load(inputs + at);
            UNROLL for (int j = 0; j < 4; ++j) results.of[j] = some.of[j] * activation_gradient<RELU>(results.of[j]);
            results.store(to + at);
          } else {
            constexpr int N = sizeof(some) / sizeof(float);
            float sums[N];
            some.store(sums);
            for (int j = 0; j < N; ++j) to[at + j] = sums[j] * activation_gradient<RELU>(inputs[at + j]);
          }
        });
  }
  // Bias gradient: sums of the columns of `out_grad`. The threads that have no block of the products above take them first.
  typedef Choose<TEAM == 1 || SIDE_FLOATS == 1, Lanes<SEGMENT>, Four>::type Side;  // a team writes only whole fours of columns
  constexpr int WIDE = sizeof(Side) / sizeof(float), BIASES = (Here::OUT + WIDE - 1) / WIDE;
  // mutant(swap >): another thread does the same work
  for (int segment : after(team, TAKEN + (L > 0) * tiles_of(TILE, fours(Here::IN), MEMBERS)).each(BIASES)) {
    Side sum, row;
    sums.begin(BIASES_AT + segment * WIDE, sum);
    UNROLL_TIMES(4) for (int m = 0; m < rows; ++m) {
      row.load(out_grad + m * Here::OUT_PAD + segment * WIDE);
      sum.add(row);
    }
    sums.end(BIASES_AT + segment * WIDE, sum);
  }
  if constexpr (L > 0) {
    team.sync();  // activation gradients are written before the previous layer reads them
    backward_from<T, L - 1>(team, tile, spare, rows, packed, sums);
  }
}
// Add the gradient of `rows` rows to `sums`. Gradients w.r.t. the towers' outputs have replaced these outputs. `spare` has
// SPARE_FLOATS.
DEVICE void backward(const Team team, Tile& tile, float* spare, const int rows, const float* packed, const Sums& sums) {
  backward_from<0, LAYERS - 1>(team, tile, spare, rows, packed, sums);
  if constexpr (TOWERS == 2) {
    if constexpr (BESIDE) team.sync();  // the first tower's gradients in spare memory are read before they are overwritten
    backward_from<1, LAYERS - 1>(team, tile, spare, rows, packed, sums);
  }
}
