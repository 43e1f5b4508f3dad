// tensor_forward.cu -- what a network gives for rows of observations, by matrix units: as forward.cu.
// Constants: those of tensor.cuh.
#include "learn/tensor.cuh"
#include "learn/observations.cuh"

struct Workspace { Network network; };
struct TensorForward {
  Forward forward;
  const float* tensors[TENSORS];  // the network's own memory
};

// Tile [ROWS * e, ROWS * (e + 1)) of the rows.
DEVICE void forward_tile(const TensorForward& call, const Team team, Network& network, const int e) {
  const Forward& about = call.forward;
  const int first = e * ROWS, left = about.rows - first, rows = left < ROWS ? left : ROWS;
  load_network(team, network, call.tensors);
  for (int i : team.each(ROWS * OBS)) {
    const int m = i / OBS, d = i - m * OBS;
    bf16& entry = network.observations().row(m)[d];
    entry = m < rows ? seen(observation(about, first + m)[d], about.center, about.scale, d) : 0.0f;
  }
  team.sync();
  forward(team, network);
  for (int m : team.each(rows)) {
    if (about.parameters != nullptr) {
      for (int k = 0; k < PARAMETERS; ++k) about.parameters[(size_type)(first + m) * PARAMETERS + k] = network.parameters(m)[k];
    }
    about.value[first + m] = *network.value(m);
  }
}

#include "drive/launch.cuh"
KERNEL(forward_rows, TensorForward, (call.forward.rows + ROWS - 1) / ROWS, forward_tile(call, team, work->network, e))
