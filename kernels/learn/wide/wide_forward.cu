// wide_forward.cu -- Forward passes of wide networks. Each team has one tile.
//
// call: kernel arguments (drive/launch.cuh).
#include "learn/wide/wide.cuh"
#include "learn/mma/outputs.cuh"

struct Workspace { AnyTower<WideTower> tower; };
struct WideForward {
  TensorForward pass;
  const bf16* fragments;
};

// Compute the outputs of tower T for tile [ROWS * e, ROWS * (e + 1)) of the rows.
template <int T> DEVICE void forward_tower(const WideForward& call, const Team team, WideTower<T>& tower, const int e) {
  const Forward& about = call.pass.forward;
  const int first = e * ROWS, left = about.rows - first, rows = left < ROWS ? left : ROWS;  // mutant(swap <): equal where they meet
  put_observations(team, tower, about.center, about.scale, [&](int m) INLINED {
    return m < rows ? observation(about, first + m) : nullptr;
  }, [](int, u32) INLINED {});
  team.sync();  // observations are written before they are read
  wide_forward(team, tower, Weights{call.pass.tensors, call.fragments}, []() INLINED {}, [](auto) INLINED {});
  store_outputs<T>(about, team.rank, TEAM, first, rows, [&](int m) INLINED { return tower.results_of(m); });
}
DEVICE void forward_tile(const WideForward& call, const Team team, AnyTower<WideTower>& tower, const int e) {
  forward_tower(call, team, tower.of<0>(), e);
  if constexpr (TOWERS == 2) {
    // mutant(dropped sync, dropped statement): only the second tower's observations are written before the next sync
    team.sync();  // the first tower's memory is read before it is overwritten
    forward_tower(call, team, tower.of<TOWERS - 1>(), e);
  }
}

#include "drive/launch.cuh"
KERNEL(forward_rows, WideForward, (call.pass.forward.rows + ROWS - 1) / ROWS, forward_tile(call, team, work->tower, e))
