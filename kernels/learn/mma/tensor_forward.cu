// tensor_forward.cu -- forward passes on tensor cores.
#include "learn/mma/tensor.cuh"
#include "learn/mma/outputs.cuh"

struct Workspace { AnyTower<Tower> tower; };

// Tiles share, share + shares, ... of the rows: outputs of tower T.
template <int T> DEVICE void forward_tower(const TensorForward& call, const Team team, Tower<T>& tower, const int share) {
  const Forward& about = call.forward;
  load_tower(team, tower, call.tensors);
  for (int first = share * ROWS; first < about.rows; first += about.shares * ROWS) {  // equal(swap <): more work, same result
    const int left = about.rows - first, rows = left < ROWS ? left : ROWS;  // equal(swap <): equal where they meet
    for (int i : team.each(ROWS * OBS)) {
      const int m = i / OBS, d = i - m * OBS;
      bf16& entry = tower.observations().row(m)[d];
      // equal(constant): rows that nobody asks for
      entry = m < rows ? seen(observation(about, first + m)[d], about.center, about.scale, d) : 0.0f;
    }
    team.sync();
    forward(team, tower);
    store_outputs<T>(about, team.rank, TEAM, first, rows, [&](int m) INLINED { return tower.results_of(m); });
  }
}
DEVICE void forward_share(const TensorForward& call, const Team team, AnyTower<Tower>& tower, const int share) {
  forward_tower(call, team, tower.of<0>(), share);
  if constexpr (TOWERS == 2) {
    team.sync();  // its memory is written again; equal(dropped sync, dropped statement): the critic's end before the actor's
    forward_tower(call, team, tower.of<TOWERS - 1>(), share);
  }
}

#include "drive/launch.cuh"
KERNEL(forward_rows, TensorForward, call.forward.shares, forward_share(call, team, work->tower, e))
