// catalysis.cu -- Atoms move over a catalyst, cell by cell, along paths of low energy (WarpDrive's rlchemists).
//
//   state   position: x, y, z of each atom [cells]. highest: maximum energy of the cells so far [eV]
//   action  the last head moves: 0 = +x, 1 = -x, 2 = +y, 3 = -y, 4 = +z, 5 = -z. With two atoms the first head selects the atom
//   reward  minus the energy of the cell entered, in units of 20 eV. A move out of the slab of known energies costs 1. Both are
//           clamped to [min_reward, 0]. TERMINAL_REWARD is then added at the target. Energies are relative to a reference
//
// x and y are periodic. z is periodic too if an atom may leave the slab (FLAT). Otherwise such a move is canceled.
constexpr int COORDINATES = 3 * ATOMS;
struct Params { float min_reward; };
struct State { Array<int, COORDINATES> position; float highest; };
#include "drive/env.cuh"

constexpr float COST_OF_EV = 1.0f / 20.0f;

// For coordinate k: cells of a period, cells in the table, first cell of the table, start of the atom, and its target.
DEVICE constexpr int period(int k) { const int of[] = {NX, NY, NZ}; return of[k % 3]; }
DEVICE constexpr int length(int k) { const int of[] = {NX, NY, TOP - BOTTOM}; return of[k % 3]; }
DEVICE constexpr int first(int k) { const int of[] = {0, 0, BOTTOM}; return of[k % 3]; }
DEVICE constexpr int start(int k) {
  const int of[] = {START_X1, START_Y1, START_Z1, START_X2, START_Y2, START_Z2};
  return of[k];
}
DEVICE constexpr int target(int k) {
  const int of[] = {TARGET_X1, TARGET_Y1, TARGET_Z1, TARGET_X2, TARGET_Y2, TARGET_Z2};
  return of[k];
}

DEVICE void reset(Env& env) {
  if (!env.team.leader()) return;
  int cell = 0;
  UNROLL for (int k = 0; k < COORDINATES; ++k) {
    env.state.position[k] = start(k);
    cell = cell * length(k) + start(k) - first(k);
  }
  env.state.highest = env.table.energy[cell];
}

// Free of branches, so that a CPU can step one environment per lane of a vector: 16 with AVX-512, 8 otherwise.
DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  State& s = env.state;
  const int move = env.atoms.action(0, ATOMS - 1), atom = ATOMS == 2 ? env.atoms.action(0, 0) : 0;
  const int axis = 3 * atom + move / 2, way = 1 - 2 * (move % 2);
  int to[COORDINATES], cell = 0;
  bool inside = true;
  // Target of the move, with periodic boundaries.
  UNROLL for (int k = 0; k < COORDINATES; ++k) {
    const int x = s.position[k] + (k == axis ? way : 0);
    to[k] = x == period(k) ? 0 : x < 0 ? period(k) - 1 : x;
    inside &= (to[k] >= first(k)) & (to[k] < first(k) + length(k));
    cell = cell * length(k) + to[k] - first(k);
  }
  // Its energy, and the move itself unless it is canceled.
  const float energy = env.table.energy[inside ? cell : 0];
  const float cost = inside ? energy * COST_OF_EV : 1.0f, highest = inside ? math::max(energy, s.highest) : s.highest;
  bool reached = true;
  UNROLL for (int k = 0; k < COORDINATES; ++k) {
    const int x = inside | FLAT ? to[k] : s.position[k];
    s.position[k] = x;
    reached &= x == target(k);
  }
  // Metrics and reward.
  env.metrics.barrier_eV += highest - s.highest;
  env.metrics.invalid_moves += !inside;
  env.metrics.successes += reached;
  s.highest = highest;
  env.atoms.reward(0) = math::clamp(-cost, env.params.min_reward, 0.0f) + (reached ? (float)TERMINAL_REWARD : 0.0f);
  return reached;
}

DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  const State& s = env.state;
  auto row = env.atoms.obs(0);
  UNROLL for (int k = 0; k < COORDINATES; ++k) row[k] = (float)s.position[k] * (1.0f / (float)period(k));
  UNROLL for (int atom = 0; atom < ATOMS; ++atom) {
    int now = 0, at_start = 0;  // squared straight distances to the target
    UNROLL for (int k = 3 * atom; k < 3 * atom + 3; ++k) {
      const int gap = s.position[k] - target(k), whole = start(k) - target(k);
      now += gap * gap;
      at_start += whole * whole;
    }
    row[COORDINATES + atom] = math::sqrt((float)now * (1.0f / (float)at_start));
  }
}
