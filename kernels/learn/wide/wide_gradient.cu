// wide_gradient.cu -- Gradients of the PPO and A2C losses w.r.t. the outputs of all layers of a wide network, row by row.
//
// They are stored for wide_sums.cu, with the layers' inputs. A block has one tile of ROWS rows and one tower.
// call: kernel arguments (drive/launch.cuh).
#include "learn/wide/wide.cuh"
#include "learn/wide/wide_rows.cuh"
#include "learn/mma/tile.cuh"

struct Workspace {
  AnyTower<WideTower> tower;
  TileMemory tile;
};

// Copy all rows of a matrix to `to`, without gaps between rows.
template <int COLUMNS> DEVICE void store_matrix(const Team team, const Matrix<COLUMNS> from, bf16* to) {
  constexpr int VECTORS = COLUMNS / 8;  // of 16 bytes, in a row
  UNROLL_TIMES(4) for (int i = team.rank; i < ROWS * VECTORS; i += TEAM) {
    Four vector;
    vector.load((const float*)(from.row(i / VECTORS) + i % VECTORS * 8));
    vector.store((float*)(to + (size_type)i * 8));
  }
}

// Process tile `tile` of the launch's rows for tower T.
template <int T> DEVICE void learn_tower(const WideLearn& about, const Team team, Workspace& work, const int tile) {
  const Learn& call = about.learn;
  if (*call.skip > 0.0f) return;
  WideTower<T>& tower = work.tower.of<T>();
  const Weights weights{about.tensors, about.fragments};
  const Chunks chunks(call, call.epoch, about.table, about.table + 2);
  const Coefficients of(call);
  const size_type first = (size_type)tile * ROWS;
  // Look up the rows of the tile, and load their observations.
  for (int m : team.each(ROWS)) {
    const int i = tile * ROWS + m;
    work.tile.row[m] = i < about.count ? chunks.row(about.from + i) : -1;  // mutant(constant): any negative number
  }
  team.sync();  // rows are written before other threads read them
  const auto row_at = [&](int m) INLINED { return observation_of(call, work.tile.row[m]); };
  put_observations(team, tower, call.center, call.scale, row_at, [&](int i, u32 word) INLINED {
    if constexpr (T == 0) ((u32*)about.rows)[first * OBS_WORDS + i] = word;
  });
  team.sync();  // observations are written before they are read
  if constexpr (T == 0 && !STORES_BITS) store_matrix(team, tower.observations(), about.rows + first * padded(OBS));

  Transition row[OWN_ROWS];
  bool there[OWN_ROWS];
  const auto load_rows = [&]() INLINED {  // prefetched during the last layer
    each_own_row(team, [&](int k, int m) INLINED {
      there[k] = work.tile.row[m] >= 0;
      if (there[k]) row[k].load(call, RowIndex(call, work.tile.row[m]));
    });
  };
  // Forward pass. Outputs are stored for the weight gradients.
  wide_forward(team, tower, weights, load_rows, [&](auto layer) INLINED {
    constexpr int L = decltype(layer)::NUMBER % LAYERS;
    store_matrix(team, tower.template outputs_of<L>(), rows_of_outputs<T, L>(about) + first * decltype(layer)::OUT_PAD);
  });
  const Moments moments = call.moments[call.epoch * call.minibatches + call.minibatch];
  float reported[REPORTED] = {};
  // Differentiate the loss of each row w.r.t. the outputs of the network.
  each_own_row(team, [&](int k, int m) INLINED {
    float metric[METRICS];
    differentiate<T>(of, tower, m, there[k], row[k], moments, metric);
    UNROLL for (int j = 0; j < REPORTED; ++j) reported[j] += metric[j];
  });
  team.sync();  // gradients w.r.t. outputs are written before they are read
  // Backward pass. Activation gradients are stored for the weight gradients.
  wide_backward(team, tower, weights, [&](auto layer) INLINED {
    constexpr int L = decltype(layer)::NUMBER % LAYERS;
    store_matrix(team, tower.template outputs_of<L>(), rows_of_gradients<T, L>(about) + first * decltype(layer)::OUT_PAD);
  });
  float* const sums = about.reported + ((size_type)tile * TOWERS + T) * METRICS;
  sum_members(team, reported, work.tile.sums, [&](int k, float sum) INLINED { sums[k] = sum; });
}

DEVICE void learn_tile(const WideLearn& call, const Team team, Workspace& work, const int e) {
  // mutant(swap ==): towers are exchanged, and each writes to its own memory
  if (e % TOWERS == 0) learn_tower<0>(call, team, work, e / TOWERS);
  else learn_tower<TOWERS - 1>(call, team, work, e / TOWERS);
}

#define BUSY_THREADS (2 * TEAM)  // per SM: two blocks, so that one runs while the other waits
#include "drive/launch.cuh"
KERNEL(wide_gradient, WideLearn, (call.count + ROWS - 1) / ROWS * TOWERS, learn_tile(call, team, *work, e))
