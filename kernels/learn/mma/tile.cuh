// tile.cuh -- A tile of a minibatch: its rows, their observations, and the gradients of their losses.
//
// A tower's memory provides `results_of(row)`, the last layer's outputs, and `outputs_of<layer>()`, matrices of bfloat16.
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "learn/mma/tensor_layers.cuh"
#include "learn/mma/warps.cuh"
#include "learn/loss.cuh"
#include "learn/observed.cuh"

constexpr int MOST_BLOCKS = 128;  // of environments, at most

struct TensorLearn {
  Learn learn;
  const int* table;               // number of rows, rows of each chunk or 0 if they differ, then the arrays of struct Chunks
  const float* tensors[TENSORS];  // weights and biases in the network's own memory
};

// The host's table of a minibatch's rows, chunk after chunk.
struct Chunks {
  const int* before;  // (B) rows of the chunks before, then (B) positions in `order`
  const int* order;   // the epoch's shuffled rows
  int blocks, rows, each;  // each: rows of each chunk, or 0 if they differ
  // before: the table after its first two numbers, possibly a copy in shared memory.
  DEVICE Chunks(const Learn& call, const int epoch, const int* table, const int* before)
      : before(before), order(call.epoch_order(epoch)), blocks(call.blocks), rows(table[0]), each(table[1]) {}
  // Row i of the minibatch, as an argument of `RowIndex`, or -1 past the last row.
  DEVICE int row(const int i) const { return i < rows ? order[place(i)] : -1; }
  // Position in `order` of row i of the minibatch, i in [0, rows).
  DEVICE int place(const int i) const {
    if (each > 0) {  // mutant(constant): more work, same result
      const int low = i / each;
      return before[blocks + low] + i - low * each;
    }
    int low = 0;
    for (int high = blocks; high - low > 1;) {  // the chunk is in [low, high)
      const int middle = (low + high) / 2;
      if (before[middle] <= i) low = middle;
      else high = middle;
    }
    return before[blocks + low] + i - before[low];
  }
};

// Compute split `split` of the gradient. Splits alternate between the towers. The kernel's learn_tower(TowerNumber, ...) adds up
// tiles first_tile, first_tile + teams, ... of a tower.
template <class Work> DEVICE void learn_split(const TensorLearn& call, const Team team, Work& work, const int split) {
  const int first_tile = split / TOWERS, teams = call.learn.splits / TOWERS;
  float* const sums = call.learn.partial_sums + (size_type)split * GRADIENT_FLOATS;
  if (split % TOWERS == 0) learn_tower(TowerNumber<0>{}, call, team, work, first_tile, teams, sums);
  else learn_tower(TowerNumber<TOWERS - 1>{}, call, team, work, first_tile, teams, sums);
}

// Memory of a tile in a block, in addition to the tower's rows.
struct TileMemory {
  int row[ROWS];               // arguments of `RowIndex`, or -1 if there is no row
  float sums[REPORTED * WARPS];
};

constexpr int OWN_ROWS = own_count(ROWS);
// Call visit(k, m): row m of a tile is the k-th one of this thread.
template <class Visit> DEVICE void each_own_row(const Team team, Visit visit) {
  UNROLL for (int k = 0; k < OWN_ROWS; ++k) {
    const int m = team.rank + k * TEAM;
    if (ROWS % TEAM == 0 || m < ROWS) visit(k, m);
  }
}

// observation_of: a row's observation in memory, or null if there is no row. entry_of: its entry d, or 0 if there is no row.
DEVICE const Observed* observation_of(const Learn& call, const int row) {
  if (row < 0) return nullptr;
  const RowIndex place(call, row);
  return observed(call.obs[place.group], place.row);
}
DEVICE float entry_of(const Learn& call, const int row, const int d) {
  return row < 0 ? 0.0f : entry_of(observation_of(call, row), d);
}
// Observations of a tile that a thread prefetches, if they are few floats. LANES threads divide ROWS_OF_LANES of its rows.
template <int LANES, int ROWS_OF_LANES> struct EntriesAhead {
  static constexpr int ENTRIES = ROWS_OF_LANES * OBS_ACROSS, OWN = (ENTRIES + LANES - 1) / LANES;
  static constexpr bool AHEAD = OBS_AT_ONCE == 1 && OWN <= 8;
  float of[AHEAD ? OWN : 1];  // mutant(constant): more room, never read

  // Call visit(k, m, d): this thread's k-th entry, or group of OBS_AT_ONCE, begins at entry d of the observation of row m.
  template <class Visit> static DEVICE void each(const Team team, Visit visit) {
    UNROLL_TIMES(AHEAD ? OWN : 1) for (int k = 0; k < OWN; ++k) {
      const int i = (LANES == TEAM ? team.rank : team.rank % LANES) + k * LANES;
      // mutant(swap * 1): more work, same result
      if (ENTRIES % LANES == 0 || i < ENTRIES) visit(k, (LANES == TEAM ? 0 : team.rank / LANES * ROWS_OF_LANES) + i / OBS_ACROSS, i % OBS_ACROSS * OBS_AT_ONCE);
    }
  }
  DEVICE void load(const Learn& call, const Team team, const int* row) {
    if constexpr (AHEAD) each(team, [&](int k, int m, int d) INLINED { of[k] = entry_of(call, row[m], d); });
  }
  // Call put_entry(m, d, x): x is entry d of row m as the network sees it.
  template <class Put> DEVICE void put(const Learn& call, const Team team, const int* row, Put put_entry) const {
    each(team, [&](int k, int m, int d) INLINED {
      const auto put_normalized = [&](int d, float x) INLINED { put_entry(m, d, normalize_entry(x, call.center, call.scale, d)); };
      if constexpr (AHEAD) put_normalized(d, of[k]);
      else if (row[m] < 0) for (int j = d; j < OBS && j < d + OBS_AT_ONCE; ++j) put_normalized(j, 0.0f);
      else each_at_once(observation_of(call, row[m]), d, put_normalized);
    });
  }
};
// Replace the outputs of row m by the gradient of its loss, or by 0 if it has no row. Writes the reported metrics to `metric`.
template <int T, class Memory> DEVICE void differentiate(const Coefficients& of, Memory& tower, const int m, const bool there,
                                                         const Transition& row, const Moments moments, float* metric) {
  constexpr int USED = WIDTH[T][LAYERS];
  float* const results = tower.results_of(m);
  for (int k = 0; k < METRICS; ++k) metric[k] = 0.0f;
  if constexpr (Q_VALUES) {
    if (there) differentiate_choice(row, moments, results, metric);
    for (int k = 0; k < PARAMETERS && !there; ++k) results[k] = 0.0f;
  } else if constexpr (T == 0) {
    if (there && row.active) {
      differentiate_policy(of, row, moments, results, metric);
    } else {
      for (int k = 0; k < PARAMETERS; ++k) results[k] = 0.0f;
    }
  }
  if constexpr (T == TOWERS - 1 && !Q_VALUES) {
    if (there && row.valued) differentiate_value(of, row, moments, results[USED - 1], metric);
    else results[USED - 1] = 0.0f;
  }
  const auto out_grad = tower.template outputs_of<LAYERS - 1>();
  UNROLL for (int k = 0; k < padded(USED); k += 2) {
    // mutant(swap + 1, swap < 2): the weight there is 0
    out_grad.two(m, k) = pair(k < USED ? results[k] : 0.0f, k + 1 < USED ? results[k + 1] : 0.0f);
  }
}
