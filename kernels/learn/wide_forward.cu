// wide_forward.cu -- what a wide network gives for rows of observations, by matrix units: as forward.cu.
// Constants: those of wide.cuh.
#include "learn/wide.cuh"
#include "learn/observations.cuh"

struct Workspace { AnyWideTower tower; };
struct WideForward {
  Forward forward;
  const float* tensors[TENSORS];  // the network's own memory
  const bf16* fragments;
};

// Tiles share, share + shares, ... of the rows: outputs of tower T.
template <int T> DEVICE void forward_tower(const WideForward& call, const Team team, WideTower<T>& tower, const int share) {
  const Forward& about = call.forward;
  for (int first = share * ROWS; first < about.rows; first += about.shares * ROWS) {
    const int left = about.rows - first, rows = left < ROWS ? left : ROWS;
    put_observations(team, tower, about.center, about.scale, [&](int m, int d) INLINED {
      return m < rows ? observation(about, first + m)[d] : 0.0f;
    });
    team.sync();
    wide_forward(team, tower, Weights{call.tensors, call.fragments}, []() INLINED {}, [](auto) INLINED {});
    if (T == 0 && about.parameters != nullptr) {
      float* const parameters = about.parameters + (size_type)first * PARAMETERS;
      for (int i : team.each(rows * PARAMETERS)) parameters[i] = tower.results_of(i / PARAMETERS)[i % PARAMETERS];
    }
    if constexpr (T == TOWERS - 1) {
      for (int m : team.each(rows)) about.value[first + m] = tower.results_of(m)[TOWERS == 1 ? PARAMETERS : 0];
    }
    team.sync();  // its memory is written again
  }
}
DEVICE void forward_share(const WideForward& call, const Team team, AnyWideTower& tower, const int share) {
  forward_tower(call, team, tower.of<0>(), share);
  if constexpr (TOWERS == 2) forward_tower(call, team, tower.of<TOWERS - 1>(), share);
}

#define BUSY_THREADS (2 * TEAM)  // of a processor: two blocks, which wait in turn
#include "drive/launch.cuh"
KERNEL(forward_rows, WideForward, call.forward.shares, forward_share(call, team, work->tower, e))
