// tensor_forward.cu -- what a network gives for rows of observations, by matrix units: as forward.cu.
// Constants: those of tensor.cuh.
#include "learn/tensor.cuh"
#include "learn/observations.cuh"

struct Workspace { AnyTower tower; };
struct TensorForward {
  Forward forward;
  const float* tensors[TENSORS];  // the network's own memory
};

// Tile [ROWS * e, ROWS * (e + 1)) of the rows: outputs of tower T.
template <int T> DEVICE void forward_tower(const TensorForward& call, const Team team, Tower<T>& tower, const int e) {
  const Forward& about = call.forward;
  const int first = e * ROWS, left = about.rows - first, rows = left < ROWS ? left : ROWS;
  load_tower(team, tower, call.tensors);
  for (int i : team.each(ROWS * OBS)) {
    const int m = i / OBS, d = i - m * OBS;
    bf16& entry = tower.observations().row(m)[d];
    entry = m < rows ? seen(observation(about, first + m)[d], about.center, about.scale, d) : 0.0f;
  }
  team.sync();
  forward(team, tower);
  for (int m : team.each(rows)) {
    const float* const results = tower.results_of(m);
    if (T == 0 && about.parameters != nullptr) {
      for (int k = 0; k < PARAMETERS; ++k) about.parameters[(size_type)(first + m) * PARAMETERS + k] = results[k];
    }
    if (T == TOWERS - 1) about.value[first + m] = results[TOWERS == 1 ? PARAMETERS : 0];
  }
}
DEVICE void forward_tile(const TensorForward& call, const Team team, AnyTower& tower, const int e) {
  forward_tower(call, team, tower.of<0>(), e);
  if constexpr (TOWERS == 2) {
    team.sync();  // its memory is written again
    forward_tower(call, team, tower.of<TOWERS - 1>(), e);
  }
}

#include "drive/launch.cuh"
KERNEL(forward_rows, TensorForward, (call.forward.rows + ROWS - 1) / ROWS, forward_tile(call, team, work->tower, e))
