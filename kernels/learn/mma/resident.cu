// resident.cu -- All minibatches of an iteration in one block: gradients by mma, and optimizer steps.
//
// Weights and moments stay in shared memory. The steps are those of tensor_gradient.cu and update.cu, except for the order in which
// the squares of a gradient are added.
// call: kernel arguments (drive/launch.cuh).
#include "learn/mma/tower_gradient.cuh"
#include "learn/mma/resident.cuh"

constexpr bool ONE_TOWER = TOWERS == 1;  // its memory is free when the gradient is complete, and the gradient overwrites it

struct Workspace {
  union {
    AnyTower<Tower> tower;
    alignas(16) float gradient[ONE_TOWER ? NUMBERS : 1];
  };
  alignas(16) float gradients[ONE_TOWER ? 1 : NUMBERS];
  alignas(16) float weights[NUMBERS], first[NUMBERS], second[NUMBERS];  // in the layout of a gradient, padded with zeros
  TileMemory tile;
  float reported[METRICS];  // sums over a minibatch's rows
  float squares[WARPS], square;

  DEVICE float* total() { return ONE_TOWER ? gradient : gradients; }
};

// ---- weights and moments in shared memory ----

// Call visit(index in a gradient, its row, its column) for all weights and biases.
template <class Visit> DEVICE void each_weight(const Update& call, const Team team, Visit visit) {
  constexpr int LANES = TEAM / WARPS;
  for (int r = team.rank / LANES; r < ROWS_OF_WEIGHTS; r += WARPS) {
    const WeightRow row = weight_row(call, r);
    for (int k = team.rank % LANES; k < row.columns; k += LANES) visit(row.first_number + k, row, k);
  }
}
// Load weights and moments. Sync before reading them.
DEVICE void load_state(const Update& call, const Team team, Workspace& work) {
  for (int i : team.each(NUMBERS)) work.weights[i] = work.first[i] = work.second[i] = 0.0f;
  team.sync();  // zeros are stored before weights overwrite them
  each_weight(call, team, [&](int i, const WeightRow& row, int k) INLINED {
    work.weights[i] = row.weights[k];
    work.first[i] = row.first[k];
    work.second[i] = row.second[k];
  });
}
DEVICE void store_state(const Update& call, const Team team, const Workspace& work) {
  each_weight(call, team, [&](int i, const WeightRow& row, int k) INLINED {
    row.weights[k] = work.weights[i];
    row.first[k] = work.first[i];
    row.second[k] = work.second[i];
  });
}

// ---- the gradient ----

// Round the weights of tower T to bfloat16, as operands of its products.
template <int T, int L = 0> DEVICE void place_layers(const Team team, TowerWeights<T>& tower, const float* weights) {
  if constexpr (L < LAYERS) {
    typedef Layer<T, L> Here;
    constexpr int ACROSS = Here::IN_PAD / 2;
    const float* const own = weights + before(GRADIENT, T, L);
    const auto matrix = tower.template weights_of<L>();
    UNROLL_TIMES(4) for (int i = team.rank; i < Here::OUT_PAD * ACROSS; i += TEAM) {
      const int n = i / ACROSS, k = 2 * (i % ACROSS);
      matrix.two(n, k) = n < Here::OUT ? pair(own[n * Here::IN_PAD + k], own[n * Here::IN_PAD + k + 1]) : 0u;
    }
    for (int n : team.each(Here::OUT_PAD)) tower.biases[taken(Part::BIASES, T, L) + n] = own[Here::OUT * Here::IN_PAD + n];
    place_layers<T, L + 1>(team, tower, weights);
  }
}

// Rows of a minibatch's first tile that this thread owns.
struct FirstRows {
  int row[OWN_ROWS];
  DEVICE void load(const Resident& call, const Team team, const int k) {
    const Minibatch here(call.about.learn, k);
    each_own_row(team, [&](int own, int m) INLINED { row[own] = here.row(call, m); });
  }
  DEVICE void store(const Team team, TileMemory& memory) const {
    each_own_row(team, [&](int own, int m) INLINED { memory.row[m] = row[own]; });
    team.sync();  // rows are written before other threads read them
  }
};

// Compute the gradient of tower T over minibatch k, counted across epochs. The rows of its first tile are already in work.tile.
template <int T>
DEVICE void learn_tower(const TensorLearn& about, const Losses& losses, const Team team, Workspace& work, const int k) {
  Tower<T>& tower = work.tower.of<T>();
  const auto begin = [&]() INLINED {
    place_layers<T>(team, tower, work.weights);
    clear_beside_observations(team, tower);
    return losses;
  };
  const auto report = [&](int j, float sum) INLINED { work.reported[j] = T == 0 ? sum : work.reported[j] + sum; };
  add_tiles(about.learn, tower, work.tile, Minibatch(about.learn, k).chunks(about), team, team, 0, 1, work.total(), begin, report);
}

// ---- the step ----

// Decide the step. The gradient must be visible to all threads. The sync in here also makes the reported sums visible.
DEVICE AdamStep decide(const Optimizer& optimizer, const Team team, Workspace& work, const StepSize& size, const float inverse) {
  const float* const total = work.total();
  Four squares{};
  UNROLL_TIMES(3) for (int i = team.rank; i < NUMBERS / 4; i += TEAM) {
    Four four;
    four.load(total + 4 * i);
    UNROLL for (int j = 0; j < 4; ++j) squares.of[j] = math::fma(four.of[j], four.of[j], squares.of[j]);
  }
  const float square[1] = {(squares.of[0] + squares.of[1]) + (squares.of[2] + squares.of[3])};
  sum_members(team, square, work.squares, [&](int, float sum) INLINED { work.square = sum; });
  team.sync();  // the norm and the reported sums are written before they are read
  return optimizer.decide(size, work.square, work.reported, inverse);
}

// Update all weights. Each thread updates four at once, which do not depend on each other.
DEVICE void descend_all(const Team team, Workspace& work, const AdamStep& step) {
  const float* const total = work.total();
  UNROLL_TIMES(3) for (int i = team.rank; i < NUMBERS / 4; i += TEAM) {
    Four value, first, second, gradient;
    value.load(work.weights + 4 * i);
    first.load(work.first + 4 * i);
    second.load(work.second + 4 * i);
    gradient.load(total + 4 * i);
    UNROLL for (int j = 0; j < 4; ++j) descend(value.of[j], first.of[j], second.of[j], gradient.of[j], step);
    value.store(work.weights + 4 * i);
    first.store(work.first + 4 * i);
    second.store(work.second + 4 * i);
  }
}

// Store the gradient of a minibatch that no step follows, for inspection.
DEVICE void store_gradient(const Update& call, const Team team, Workspace& work, const int verdict) {
  if (team.leader()) call.step_size->verdict = verdict;
  if (verdict == SKIPPED) return;
  for (int i : team.each(NUMBERS)) call.total[i] = work.total()[i];
  for (int j : team.each(REPORTED)) call.total[NUMBERS + j] = work.reported[j];
}

DEVICE void learn_minibatches(const Resident& call, const Team team, Workspace& work) {
  const Update& update = call.update;
  const Learn& learn = call.about.learn;
  Optimizer optimizer(call, team);
  // Load the optimizer's state. The first tile's rows are prefetched.
  FirstRows first;
  first.load(call, team, call.from);
  load_state(update, team, work);
  for (int k = call.from; optimizer.reaches(k); ++k) {
    const Losses losses{optimizer.of, learn.moments[k], true};
    const StepSize size = optimizer.next_size();
    first.store(team, work.tile);
    learn_tower<0>(call.about, losses, team, work, k);
    if constexpr (TOWERS == 2) {
      first.store(team, work.tile);
      learn_tower<TOWERS - 1>(call.about, losses, team, work, k);
    }
    if (k + 1 < call.until) first.load(call, team, k + 1);  // prefetched during the step
    const float inverse = losses.moments.inverse;
    const AdamStep step = decide(optimizer, team, work, size, inverse);
    if (call.looks) return store_gradient(update, team, work, step.verdict);
    optimizer.go_on(team, step, work.reported, inverse, k, [&]() INLINED { descend_all(team, work, step); });
    team.sync();  // weights are updated before the next gradient reads them
  }
  if (call.looks) return store_gradient(update, team, work, SKIPPED);
  // Store the optimizer's state.
  store_state(update, team, work);
  optimizer.store(team);
}

// This gives a thread 128 registers. Shared memory limits how many blocks fit.
#define BUSY_THREADS 512  // per SM
#include "drive/launch.cuh"
KERNEL(learn_all, Resident, 1, learn_minibatches(call, team, *work))
