// warp_forward.cu -- Forward passes of many rows on tensor cores, with the bits of tensor_forward.cu.
//
// A block keeps the weights of all towers. Each warp takes ROWS rows through all layers in registers, and prefetches the
// observations of its next rows.
// call: kernel arguments (drive/launch.cuh).
#include "learn/mma/tensor.cuh"
#include "learn/mma/outputs.cuh"
#include "learn/wide/pipeline.cuh"
#include "learn/mma/warp_rows.cuh"

constexpr int STAGES = 2;  // double buffering of observations
// Stride of the last layer's outputs. An odd number of words puts rows into different banks.
constexpr int results_of_row(const int tower) { return WIDTH[tower][LAYERS] | 1; }
// mutant(swap >): equal where they meet
constexpr int RESULTS = results_of_row(0) > results_of_row(TOWERS - 1) ? results_of_row(0) : results_of_row(TOWERS - 1);

// Memory of each warp.
struct WarpMemory {
  alignas(16) float entries[STAGES][ROWS * OBS];  // observations in the format of global memory
  float results[ROWS * RESULTS];
  DEVICE float* results_of(int m) { return results + m * RESULTS; }
};
struct NoTower {};
struct Workspace {
  TowerWeights<0> first;
  Choose<TOWERS == 2, TowerWeights<TOWERS - 1>, NoTower>::type last;
  WarpMemory warps[WARPS];
};
template <int T> DEVICE auto& weights_of(Workspace& work) {
  if constexpr (T == 0) return work.first;
  else return work.last;
}

template <int T = 0> DEVICE void load_towers(const Team team, Workspace& work, const float* const* tensors) {
  load_layers<T>(team, weights_of<T>(work), tensors);
  if constexpr (T + 1 < TOWERS) load_towers<T + 1>(team, work, tensors);
}

// Compute layer L and those after it, for rows whose inputs are `left`. The last layer's outputs go to `own`, where all lanes read
// them.
template <int T, int L, int K>
DEVICE void forward_rows_of(const int lane, Workspace& work, WarpMemory& own, const RowFragments<K>& left) {
  typedef Layer<T, L> Here;
  auto& weights = weights_of<T>(work);
  const float* const biases = weights.biases + taken(Part::BIASES, T, L);
  if constexpr (Here::LAST) {
    multiply_rows<Here::OUT_PAD>(lane, left, weights.template weights_of<L>(), [&](Spot spot, float c, float d) INLINED {
      if (spot.n < Here::OUT) own.results_of(spot.m)[spot.n] = c + biases[spot.n];  // mutant(swap <): one place more, never read
      if (spot.n + 1 < Here::OUT) own.results_of(spot.m)[spot.n + 1] = d + biases[spot.n + 1];
    });
  } else {
    RowFragments<Here::OUT_PAD> outputs;
    multiply_rows<Here::OUT_PAD>(lane, left, weights.template weights_of<L>(), [&](Spot spot, float c, float d) INLINED {
      outputs.put(spot, activation<RELU>(c + biases[spot.n]), activation<RELU>(d + biases[spot.n + 1]));
    });
    forward_rows_of<T, L + 1>(lane, work, own, outputs);
  }
}

// Compute the outputs of towers T, ... for rows [first, first + rows), whose observations are `entries`.
template <int T = 0>
DEVICE void forward_towers(const Forward& call, const int lane, Workspace& work, WarpMemory& own, const float* entries,
                           const int first, const int rows) {
  RowFragments<padded(OBS)> inputs;
  inputs.fill(lane, [&](int m, int d) INLINED {
    return d < OBS ? normalize_entry(entries[m * OBS + d], call.center, call.scale, d) : 0.0f;
  });
  forward_rows_of<T, 0>(lane, work, own, inputs);
  sync_warp();  // results are written before other lanes read them
  store_outputs<T>(call, lane, WARP_LANES, first, rows, [&](int m) INLINED { return own.results_of(m); });
  sync_warp();  // results are read before they are overwritten
  if constexpr (T + 1 < TOWERS) forward_towers<T + 1>(call, lane, work, own, entries, first, rows);
}

// Tiles of ROWS rows are divided among all warps of all teams.
DEVICE void forward_tiles(const TensorForward& call, const Team team, Workspace& work, const int e) {
  const Forward& about = call.forward;
  // mutant(swap /): a CPU's warp is one thread, rank 0
  const int warp = team.rank / WARP_LANES, lane = team.rank % WARP_LANES, stride = about.teams * WARPS * ROWS;
  WarpMemory& own = work.warps[warp];
  // Prefetch the observations of one tile.
  const auto load = [&](const int first, float* to) INLINED {
    const int entries = (about.rows - first < ROWS ? about.rows - first : ROWS) * OBS;
    if (first < about.rows) {  // mutant(swap <): no entry past the last row
      UNROLL_TIMES(OBS <= 32 ? OBS : 8) for (int i = lane; i < ROWS * OBS; i += WARP_LANES) {
        const bool there = i < entries;
#if OBSERVED == OBSERVED_FLOATS
        const float* const from = about.at == nullptr ? observed(about.obs, first) + i
                                                      : observation(about, first + (there ? i / OBS : 0)) + i % OBS;
        copy_async(to + i, there ? from : (const float*)about.obs, there);
#else
        to[i] = there ? entry_of(observation(about, first + i / OBS), i % OBS) : 0.0f;
#endif
      }
    }
    commit_stage();  // mutant(dropped statement): a CPU copies immediately
  };
  int first = (e * WARPS + warp) * ROWS;  // mutant(swap +): a CPU's warp is one thread, rank 0
  load(first, own.entries[0]);
  load_towers(team, work, call.tensors);
  team.sync();  // weights are written before they are read
  for (int turn = 0; first < about.rows; first += stride, turn ^= 1) {
    // Prefetch the next tile, then wait for this one.
    load(first + stride, own.entries[turn ^ 1]);
    wait_stages<1>();
    sync_warp();  // all lanes' copies are complete before they are read
    const int left = about.rows - first, rows = left < ROWS ? left : ROWS;
    forward_towers(about, lane, work, own, own.entries[turn], first, rows);
  }
}

#define BUSY_THREADS 512  // per SM, so that a thread has 128 registers
#include "drive/launch.cuh"
KERNEL(forward_rows, TensorForward, call.forward.teams, forward_tiles(call, team, *work, e))
