// tensor_forward.cu -- Forward passes on tensor cores.
//
// call: kernel arguments (drive/launch.cuh).
#include "learn/mma/tensor.cuh"
#include "learn/mma/outputs.cuh"

struct Workspace { AnyTower<Tower> tower; };

// Compute the outputs of tower T for tiles first_tile, first_tile + teams, ... of the rows.
template <int T> DEVICE void forward_tower(const TensorForward& call, const Team team, Tower<T>& tower, const int first_tile) {
  const Forward& about = call.forward;
  load_tower(team, tower, call.tensors);
  for (int first = first_tile * ROWS; first < about.rows; first += about.teams * ROWS) {  // mutant(swap <): more work, same result
    const int left = about.rows - first, rows = left < ROWS ? left : ROWS;  // mutant(swap <): equal where they meet
    for (int i : team.each(rows * OBS_ACROSS)) {
      const int m = i / OBS_ACROSS;
      each_at_once(observation(about, first + m), i % OBS_ACROSS * OBS_AT_ONCE, [&](int d, float x) INLINED {
        tower.observations().row(m)[d] = normalize_entry(x, about.center, about.scale, d);
      });
    }
    team.sync();  // observations and weights are written before they are read
    forward(team, tower);
    store_outputs<T>(about, team.rank, TEAM, first, rows, [&](int m) INLINED { return tower.results_of(m); });
  }
}
DEVICE void forward_tiles(const TensorForward& call, const Team team, AnyTower<Tower>& tower, const int first_tile) {
  forward_tower(call, team, tower.of<0>(), first_tile);
  if constexpr (TOWERS == 2) {
    team.sync();  // the memory is reused. mutant(dropped sync, dropped statement): the critic's end before the actor's
    forward_tower(call, team, tower.of<TOWERS - 1>(), first_tile);
  }
}

#include "drive/launch.cuh"
KERNEL(forward_rows, TensorForward, call.forward.teams, forward_tiles(call, team, work->tower, e))
