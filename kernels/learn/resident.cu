// resident.cu -- all minibatches of an iteration by one block: gradients by matrix units, and the steps along them.
//
// What a step changes, weights and Adam's averages, stays in the block's shared memory from the first minibatch to the last. For
// minibatches of few rows, which other blocks could not share: many members of a population have a block each.
// Steps are those of tensor_gradient.cu and update.cu, where the squares of a gradient are added in another order.
// Constants: those of tensor.cuh, minibatches.cuh and loss.cuh.
#include "learn/tower_gradient.cuh"
#include "learn/adam.cuh"

constexpr int NUMBERS = GRADIENT_FLOATS - METRICS;  // of a gradient
constexpr bool ONE_TOWER = TOWERS == 1;             // nobody needs it any more when its gradient is there, which takes its place

struct Resident {
  TensorLearn about;
  Update update;
  int from, until;  // of the minibatches of all epochs
  int looks;        // 1: the gradient of `from` goes to `total`, and no step is taken
};

struct Workspace {
  union {
    AnyTower<Tower> tower;
    alignas(16) float gradient[ONE_TOWER ? NUMBERS : 1];
  };
  alignas(16) float gradients[ONE_TOWER ? 1 : NUMBERS];
  alignas(16) float weights[NUMBERS], first[NUMBERS], second[NUMBERS];  // as a gradient has them, zeros between them
  TileMemory tile;
  float reported[METRICS];  // sums over a minibatch's rows
  float squares[WARPS], square;

  DEVICE float* total() { return ONE_TOWER ? gradient : gradients; }
};

// ---- what a block keeps ----

// visit(place in a gradient, the row that it belongs to, its column) for all weights and biases.
template <class Visit> DEVICE void each_weight(const Update& call, const Team team, Visit visit) {
  constexpr int LANES = TEAM / WARPS;
  for (int r = team.rank / LANES; r < ROWS_OF_WEIGHTS; r += WARPS) {
    const WeightRow row = weight_row(call, r);
    for (int k = team.rank % LANES; k < row.columns; k += LANES) visit(row.first_number + k, row, k);
  }
}
// Who reads what is fetched must sync first.
DEVICE void fetch(const Update& call, const Team team, Workspace& work) {
  for (int i : team.each(NUMBERS)) work.weights[i] = work.first[i] = work.second[i] = 0.0f;
  team.sync();
  each_weight(call, team, [&](int i, const WeightRow& row, int k) INLINED {
    work.weights[i] = row.weights[k];
    work.first[i] = row.first[k];
    work.second[i] = row.second[k];
  });
}
DEVICE void leave(const Update& call, const Team team, const Workspace& work) {
  each_weight(call, team, [&](int i, const WeightRow& row, int k) INLINED {
    row.weights[k] = work.weights[i];
    row.first[k] = work.first[i];
    row.second[k] = work.second[i];
  });
}

// What all members know alike of the steps so far.
struct Standing {
  float skip, bad, step;
  Corrections made;
  DEVICE explicit Standing(const Update& call) : skip(*call.skip), bad(*call.bad), step(call.step[0]), made(*call.corrections) {}

  DEVICE void leave(const Update& call, const Team team, const bool ends) const {
    for (int k : team.each(TENSORS)) call.step[k] = step;
    if (!team.leader()) return;
    *call.corrections = made;
    *call.bad = bad;
    *call.skip = ends ? 0.0f : skip;
    if (ends) *call.iteration += 1;
  }
};

struct Rates {
  float learning_rate, max_grad_norm;
  DEVICE explicit Rates(const Update& call) : learning_rate(*call.learning_rate), max_grad_norm(*call.max_grad_norm) {}
};

// What this member adds to `metric_sums`.
struct Report {
  static constexpr int OWN = own_count(METRICS);
  float metric[OWN];
  DEVICE Report(const Update& call, const Team team) {
    each(call, team, [&](int own, int k) INLINED { metric[own] = call.metric_sums[k]; });
  }
  template <class Visit> static DEVICE void each(const Update& call, const Team team, Visit visit) {
    UNROLL for (int own = 0; own < OWN; ++own) {
      const int k = team.rank + own * TEAM;
      if (k <= call.reported) visit(own, k);
    }
  }
  DEVICE void add(const Update& call, const Team team, const float* sums, const float inverse, const float norm) {
    each(call, team, [&](int own, int k) INLINED {
      metric[own] += k == call.norm_at ? norm : k == call.reported ? 1.0f : sums[k < call.norm_at ? k : k - 1] * inverse;
    });
  }
  DEVICE void leave(const Update& call, const Team team) const {
    each(call, team, [&](int own, int k) INLINED { call.metric_sums[k] = metric[own]; });
  }
};

// ---- the gradient ----

// Rounds the weights of tower T to where products read them.
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

DEVICE Chunks chunks_of(const TensorLearn& about, const int k) {
  const Learn& call = about.learn;
  const int epoch = k / call.minibatches;
  const int* const table = about.table + (k - epoch * call.minibatches) * (2 + 2 * call.blocks);
  return Chunks(call, epoch, table, table + 2);
}

// The rows of the first tile of a minibatch that are this member's.
struct FirstRows {
  int row[OWN_ROWS];
  DEVICE void load(const TensorLearn& about, const Team team, const int k) {
    const Chunks chunks = chunks_of(about, k);
    each_own_row(team, [&](int own, int m) INLINED { row[own] = chunks.row(m); });
  }
  DEVICE void store(const Team team, TileMemory& memory) const {
    each_own_row(team, [&](int own, int m) INLINED { memory.row[m] = row[own]; });
    team.sync();
  }
};

// The gradient of tower T over minibatch k of all epochs, whose first rows are in the tile's memory.
template <int T>
DEVICE void learn_tower(const TensorLearn& about, const Losses& losses, const Team team, Workspace& work, const int k) {
  Tower<T>& tower = work.tower.of<T>();
  const auto begin = [&]() INLINED {
    place_layers<T>(team, tower, work.weights);
    clear_beside_observations(team, tower);
    return losses;
  };
  const auto report = [&](int j, float sum) INLINED { work.reported[j] = T == 0 ? sum : work.reported[j] + sum; };
  add_tiles(about.learn, tower, work.tile, chunks_of(about, k), team, 0, 1, work.total(), begin, report);
}

// ---- the step ----

// All members see the gradient, and those that summed up what is reported have done so before its sync.
DEVICE Decision decide(const Rates& rates, const Coefficients& of, const Team team, Workspace& work, Standing& now,
                       const float inverse) {
  const float* const total = work.total();
  Four squares{};
  UNROLL_TIMES(3) for (int i = team.rank; i < NUMBERS / 4; i += TEAM) {
    Four four;
    four.load(total + 4 * i);
    UNROLL for (int j = 0; j < 4; ++j) squares.of[j] = math::fma(four.of[j], four.of[j], squares.of[j]);
  }
  const float square[1] = {(squares.of[0] + squares.of[1]) + (squares.of[2] + squares.of[3])};
  sum_members(team, square, work.squares, [&](int, float sum) INLINED { work.square = sum; });
  team.sync();
  const float* const sums = work.reported;
  const float loss = sums[0] * inverse - of.entropy * (sums[2] * inverse) + of.value * (sums[1] * inverse);
  const float norm = math::sqrt(work.square), scale = rates.max_grad_norm / (norm + 1e-6f);
  now.made = corrections_of(now.made, now.step + 1.0f);
  const bool sound = is_finite(loss) && is_finite(norm) && !(now.bad > 0.0f);
  // The last number is one over the root, unlike update.cu's: each weight's step multiplies by it.
  return {sound ? SOUND : UNSOUND, norm, scale < 1.0f ? scale : 1.0f, rates.learning_rate / now.made.first,
          1.0f / math::sqrt(now.made.second)};
}

// One weight's step: struct Weight's, by the hardware's root and quotient, with one over the correction's root.
DEVICE void descend(float& value, float& first, float& second, const float gradient, const Decision& decision) {
  const float scaled = gradient * decision.scale;
  first = math::fma(FIRST_RATE, scaled - first, first);
  second = math::fma(1.0f - SECOND_RATE, second, SECOND_RATE * scaled * scaled);
  value -= decision.rate * quotient(first, math::fma(square_root(second), decision.root, EPSILON));
}
// Of all weights. Members take four side by side, which wait for nothing of each other.
DEVICE void descend_all(const Team team, Workspace& work, const Decision& decision) {
  const float* const total = work.total();
  UNROLL_TIMES(3) for (int i = team.rank; i < NUMBERS / 4; i += TEAM) {
    Four value, first, second, gradient;
    value.load(work.weights + 4 * i);
    first.load(work.first + 4 * i);
    second.load(work.second + 4 * i);
    gradient.load(total + 4 * i);
    UNROLL for (int j = 0; j < 4; ++j) descend(value.of[j], first.of[j], second.of[j], gradient.of[j], decision);
    value.store(work.weights + 4 * i);
    first.store(work.first + 4 * i);
    second.store(work.second + 4 * i);
  }
}

// Leaves the gradient of a minibatch, which no step follows, for whoever looks at it.
DEVICE void show(const Update& call, const Team team, Workspace& work, const int verdict) {
  if (team.leader()) call.prospect->verdict = verdict;
  if (verdict == SKIPPED) return;
  for (int i : team.each(NUMBERS)) call.total[i] = work.total()[i];
  for (int j : team.each(REPORTED)) call.total[NUMBERS + j] = work.reported[j];
}

DEVICE void learn_minibatches(const Resident& call, const Team team, Workspace& work) {
  const Update& update = call.update;
  const Learn& learn = call.about.learn;
  const Coefficients of(learn);
  const Rates rates(update);
  Standing now(update);
  Report report(update, team);
  FirstRows first;
  first.load(call.about, team, call.from);
  fetch(update, team, work);
  for (int k = call.from; k < call.until && !(now.skip > 0.0f); ++k) {
    const Losses losses{of, learn.moments[k], true};
    first.store(team, work.tile);
    learn_tower<0>(call.about, losses, team, work, k);
    if constexpr (TOWERS == 2) {
      first.store(team, work.tile);
      learn_tower<TOWERS - 1>(call.about, losses, team, work, k);
    }
    if (k + 1 < call.until) first.load(call.about, team, k + 1);  // on their way during the step
    const float inverse = losses.moments.inverse;
    const Decision decision = decide(rates, of, team, work, now, inverse);
    if (call.looks) return show(update, team, work, decision.verdict);
    if (decision.verdict == SOUND) {
      const bool epoch_ends = (k + 1) % learn.minibatches == 0;
      const bool too_far = epoch_ends && update.target_kl > 0.0f && work.reported[4] * inverse > update.target_kl;
      report.add(update, team, work.reported, inverse, decision.norm);
      descend_all(team, work, decision);
      now.step += 1.0f;
      if (too_far) now.skip = 1.0f;
    } else {
      now.bad = now.skip = 1.0f;
    }
    team.sync();
  }
  if (call.looks) return show(update, team, work, SKIPPED);
  leave(update, team, work);
  report.leave(update, team);
  now.leave(update, team, call.until == learn.epochs * learn.minibatches);
}

// So many leave a thread 128 registers. How many blocks have room for the rest, their memory says.
#define BUSY_THREADS 512  // of a processor
#include "drive/launch.cuh"
KERNEL(learn_all, Resident, 1, learn_minibatches(call, team, *work))
