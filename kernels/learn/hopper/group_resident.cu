// group_resident.cu -- resident.cu for networks of one tower, in a block of one warpgroup.
//
// Each thread updates the weights whose gradients are in its registers. It keeps these weights in registers too, and their moments
// in shared memory that only it reads. No gradient is stored, and products read a step's weights after a single sync.
// call: kernel arguments (drive/launch.cuh).
#include "learn/hopper/group_tower.cuh"
#include "learn/mma/resident.cuh"

static_assert(TOWERS == 1, "the gradient of another tower would have to be kept");

// Parameters of layer L that a thread owns: pairs, in the order in which `Accumulator::each` visits their gradients, and in a last
// layer also biases.
template <int L> struct OwnParameters {
  typedef Layer<0, L> Here;
  typedef Gradient<0, L> LayerGradient;
  static constexpr int COLUMNS = Here::LAST ? Here::OUT : LayerGradient::ONES + 1;  // columns of `LayerGradient::own` in use
  static constexpr int PAIRS = decltype(LayerGradient::own)::own_pairs(COLUMNS);
  static constexpr int BIASES = Here::LAST ? own_count(entries(0, 2 * LAYERS - 1)) : 0;

  // Tensor and index of the parameter whose gradient is at (m, n). tensor is -1 if there is none.
  struct Spot { int tensor, place; };
  static DEVICE Spot spot(const int m, const int n) {
    const int out = Here::LAST ? n : m, in = Here::LAST ? m : n;
    if (out >= Here::OUT) return {-1, 0};
    if (in < Here::IN) return {2 * Here::NUMBER, out * Here::IN + in};
    if (!Here::LAST && in == LayerGradient::ONES) return {2 * Here::NUMBER + 1, out};
    return {-1, 0};
  }
};
// Number of pairs in the layers before L.
template <int L> constexpr int pairs_before() {
  if constexpr (L == 0) return 0;
  else return pairs_before<L - 1>() + OwnParameters<L - 1>::PAIRS;
}
constexpr int PAIRS = pairs_before<LAYERS>(), BIASES = OwnParameters<LAYERS - 1>::BIASES;

struct alignas(8) Two { float of[2]; };

struct Workspace {
  Tower<0> tower;
  Two first[PAIRS * TEAM], second[PAIRS * TEAM];  // pair k of a thread is number k * TEAM + rank
  TileRows rows;
  float reported[METRICS], square;  // sums over a minibatch's rows, sum of the squares of its gradient
  alignas(16) float sums[(REPORTED + 1) * WARPS];  // aligned, so that a thread reads the sums of four warps at once
};

// Weights and biases that a thread keeps in registers, and the moments of the biases.
struct RegisterWeights {
  float value[2 * PAIRS];
  float bias[BIASES], first[BIASES], second[BIASES];
};

// ---- parameters of a thread ----

// Call visit(OwnParameters, k, m, n, c, d) for this thread's pairs of all layers, with their gradients.
template <int L = 0, class Visit> DEVICE void each_pair(const Team team, Gradient<0>& gradient, Visit visit) {
  if constexpr (L < LAYERS) {
    typedef OwnParameters<L> Own;
    int k = pairs_before<L>();
    gradient.template of<L>().own.template each<Own::COLUMNS>(team, [&](int m, int n, float c, float d) INLINED {
      visit(Own{}, k, m, n, c, d);
      ++k;
    });
    each_pair<L + 1>(team, gradient, visit);
  }
}
// Call visit(j, n) for this thread's biases of the last layer. Bias n is its j-th one.
template <class Visit> DEVICE void each_bias(const Team team, Visit visit) {
  typedef Layer<0, LAYERS - 1> Last;
  UNROLL for (int j = 0; j < BIASES; ++j) {
    const int n = team.rank + j * TEAM;
    if (n < Last::OUT) visit(j, n);
  }
}
constexpr int LAST_BIASES = 2 * LAYERS - 1;  // tensor of the last layer's biases

// Load the optimizer's state. All loads precede all stores, so that they overlap.
DEVICE void load_state(const Update& call, const Team team, Gradient<0>& gradient, Workspace& work, RegisterWeights& registers) {
  float first[2 * PAIRS], second[2 * PAIRS];
  each_pair(team, gradient, [&](auto own, int k, int m, int n, float, float) INLINED {
    UNROLL for (int j = 0; j < 2; ++j) {
      const auto [tensor, place] = decltype(own)::spot(m, n + j);
      registers.value[2 * k + j] = tensor < 0 ? 0.0f : call.weights[tensor][place];
      first[2 * k + j] = tensor < 0 ? 0.0f : call.first[tensor][place];
      second[2 * k + j] = tensor < 0 ? 0.0f : call.second[tensor][place];
    }
  });
  each_bias(team, [&](int j, int n) INLINED {
    registers.bias[j] = call.weights[LAST_BIASES][n];
    registers.first[j] = call.first[LAST_BIASES][n];
    registers.second[j] = call.second[LAST_BIASES][n];
  });
  // Store the moments in shared memory.
  UNROLL for (int k = 0; k < PAIRS; ++k) {
    work.first[k * TEAM + team.rank] = {first[2 * k], first[2 * k + 1]};
    work.second[k * TEAM + team.rank] = {second[2 * k], second[2 * k + 1]};
  }
}
// Store the optimizer's state.
DEVICE void store_state(const Update& call, const Team team, Gradient<0>& gradient, Workspace& work, RegisterWeights& registers) {
  each_pair(team, gradient, [&](auto own, int k, int m, int n, float, float) INLINED {
    const Two first = work.first[k * TEAM + team.rank], second = work.second[k * TEAM + team.rank];
    UNROLL for (int j = 0; j < 2; ++j) {
      const auto [tensor, place] = decltype(own)::spot(m, n + j);
      if (tensor < 0) continue;
      call.weights[tensor][place] = registers.value[2 * k + j];
      call.first[tensor][place] = first.of[j];
      call.second[tensor][place] = second.of[j];
    }
  });
  each_bias(team, [&](int j, int n) INLINED {
    call.weights[LAST_BIASES][n] = registers.bias[j];
    call.first[LAST_BIASES][n] = registers.first[j];
    call.second[LAST_BIASES][n] = registers.second[j];
  });
}

// ---- the step ----

// Gradients of the last layer's biases that this thread owns. All threads must have waited for all products, and synced.
struct BiasGradients {
  float of[BIASES];
  DEVICE BiasGradients(const Team team, const Gradient<0, LAYERS - 1>& gradient, Tower<0>& tower) {
    UNROLL for (int j = 0; j < BIASES; ++j) of[j] = 0.0f;
    int j = 0;
    gradient.biases.each(team, tower.results, [&](int n, float sum) INLINED {
      if (n < Layer<0, LAYERS - 1>::OUT) of[j] = sum;  // mutant(dropped condition): a gradient of 0
      ++j;
    });
  }
};

// Store this thread's weights, rounded to bfloat16, and biases where products read them.
DEVICE void place_all(const Team team, Tower<0>& tower, Gradient<0>& gradient, const RegisterWeights& registers) {
  each_pair(team, gradient, [&](auto own, int k, int m, int n, float, float) INLINED {
    typedef decltype(own) Own;
    typedef typename Own::Here Here;
    constexpr int L = Here::NUMBER;
    const float one = registers.value[2 * k], other = registers.value[2 * k + 1];
    const auto weights = tower.template weights_of<L>();
    if constexpr (Here::LAST) {
      if (n < Here::OUT) weights.put(n, m, one);
      if (n + 1 < Here::OUT) weights.put(n + 1, m, other);
    } else {
      constexpr int ONES = Own::LayerGradient::ONES;
      if (n < entries(0, L)) weights.two(m, n) = pair(n < Here::IN ? one : 0.0f, n + 1 < Here::IN ? other : 0.0f);
      if (n == ONES) tower.biases[L][m] = one;
      if (n + 1 == ONES) tower.biases[L][m] = other;
    }
  });
  each_bias(team, [&](int j, int n) INLINED { tower.biases[LAYERS - 1][n] = registers.bias[j]; });
}

// Add up the reported metrics of a minibatch and the squares of its gradient. All threads can read the sums.
DEVICE void add_up(const Team team, Workspace& work, Gradient<0>& gradient, const BiasGradients& biases,
                   const float (&reported)[REPORTED]) {
  float squares[4] = {};  // independent accumulators, so that fewer additions wait for each other
  each_pair(team, gradient, [&](auto own, int k, int m, int n, float c, float d) INLINED {
    float* const two = squares + k % 2 * 2;
    if (decltype(own)::spot(m, n).tensor >= 0) two[0] = math::fma(c, c, two[0]);
    if (decltype(own)::spot(m, n + 1).tensor >= 0) two[1] = math::fma(d, d, two[1]);
  });
  float square = (squares[0] + squares[1]) + (squares[2] + squares[3]);
  UNROLL for (int j = 0; j < BIASES; ++j) square = math::fma(biases.of[j], biases.of[j], square);
  float mine[REPORTED + 1];
  UNROLL for (int k = 0; k < REPORTED; ++k) mine[k] = reported[k];
  mine[REPORTED] = square;
  sum_members(team, mine, work.sums, [&](int k, float sum) INLINED { (k < REPORTED ? work.reported[k] : work.square) = sum; });
  team.sync();  // sums are written before other threads read them
}

// Update this thread's parameters, and store them, rounded, where products read them after the next sync. All loads precede all
// stores, because the compiler cannot reorder them.
DEVICE void descend_all(const Team team, Workspace& work, Gradient<0>& gradient, const BiasGradients& biases,
                        RegisterWeights& registers, const AdamStep& step) {
  Two first[PAIRS], second[PAIRS];
  UNROLL for (int k = 0; k < PAIRS; ++k) {
    first[k] = work.first[k * TEAM + team.rank];
    second[k] = work.second[k * TEAM + team.rank];
  }
  each_pair(team, gradient, [&](auto own, int k, int m, int n, float c, float d) INLINED {
    typedef decltype(own) Own;
    const float grads[2] = {Own::spot(m, n).tensor < 0 ? 0.0f : c, Own::spot(m, n + 1).tensor < 0 ? 0.0f : d};
    UNROLL for (int j = 0; j < 2; ++j) descend(registers.value[2 * k + j], first[k].of[j], second[k].of[j], grads[j], step);
  });
  each_bias(team,
            [&](int j, int) INLINED { descend(registers.bias[j], registers.first[j], registers.second[j], biases.of[j], step); });
  UNROLL for (int k = 0; k < PAIRS; ++k) {
    work.first[k * TEAM + team.rank] = first[k];
    work.second[k * TEAM + team.rank] = second[k];
  }
  place_all(team, work.tower, gradient, registers);
}

// ---- the kernel ----

// Store the gradient of a minibatch that no step follows, for inspection.
DEVICE void store_gradient(const Update& call, const Team team, Workspace& work, Gradient<0>& gradient, const int verdict) {
  if (team.leader()) call.step_size->verdict = verdict;
  if (verdict == SKIPPED) return;
  gradient.store(team, work.tower, call.total);
  for (int j : team.each(REPORTED)) call.total[NUMBERS + j] = work.reported[j];
}

// Iterator over the tiles of all minibatches.
struct Tiles {
  Minibatch minibatch;
  int k, tile;  // minibatch, counted over all epochs, and tile of it
  DEVICE explicit Tiles(const Resident& call) : minibatch(call.about.learn, call.from), k(call.from), tile(0) {}
  DEVICE void next(const Resident& call) {
    if (++tile < call.tiles) return;
    tile = 0;
    ++k;
    minibatch.next(call.about.learn);
  }
  // Row m as an argument of `RowIndex`, or -1 if there is none, as after the last tile.
  DEVICE int row(const Resident& call, const int m) const { return k < call.until ? minibatch.row(call, tile * ROWS + m) : -1; }
};

DEVICE void learn_minibatches(const Resident& call, const Team team, Workspace& work) {
  const Update& update = call.update;
  const Learn& learn = call.about.learn;
  Optimizer optimizer(call, team);
  Tower<0>& tower = work.tower;
  Tiles behind(call);  // the next tile whose rows are looked up
  int turn = 0;
  // Look up the rows of the first two tiles, and load weights and moments.
  for (int t = 0; t < 2; ++t, behind.next(call)) {
    TileRows::each(team, [&](int, int m) INLINED { work.rows.row[t][m] = behind.row(call, m); });
  }
  load_tower(team, tower, call.about.tensors);
  Gradient<0> gradient;
  gradient.clear();
  RegisterWeights registers;
  load_state(update, team, gradient, work, registers);
  fence_async_proxy();
  team.sync();  // weights and rows are written before wgmma and other threads read them
  WarpEntries ahead;
  ahead.load(learn, team, work.rows.row[0]);
  for (int k = call.from; optimizer.reaches(k); ++k) {
    const Moments moments = learn.moments[k];
    const StepSize size = optimizer.next_size();
    float reported[REPORTED] = {};
    gradient.clear();
    int left = call.tiles;
    // Accumulate the gradients of the minibatch's tiles.
    do {
      add_tile(learn, optimizer.of, moments, team, tower, work.rows, turn, ahead, gradient, reported, [&](int m) INLINED {
        return behind.row(call, m);
      });
      behind.next(call);
      turn ^= 1;
    } while (--left > 0);
    wgmma_wait();
    team.sync();  // all warps' products are complete before memory is reused. mutant(dropped sync): a CPU finishes immediately
    // Decide the step, and take it.
    const BiasGradients biases(team, gradient.template of<LAYERS - 1>(), tower);
    add_up(team, work, gradient, biases, reported);
    const AdamStep step = optimizer.decide(size, work.square, work.reported, moments.inverse);
    if (call.looks) return store_gradient(update, team, work, gradient, step.verdict);
    optimizer.go_on(team, step, work.reported, moments.inverse, k, [&]() INLINED {
      descend_all(team, work, gradient, biases, registers, step);
    });
    fence_async_proxy();
    team.sync();  // updated weights are written before wgmma reads them
  }
  if (call.looks) return store_gradient(update, team, work, gradient, SKIPPED);
  store_state(update, team, gradient, work, registers);
  optimizer.store(team);
}

// This gives a thread 255 registers. Shared memory limits how many blocks fit.
#define BUSY_THREADS 256  // per SM
#include "drive/launch.cuh"
KERNEL(learn_all, Resident, 1, learn_minibatches(call, team, *work))
