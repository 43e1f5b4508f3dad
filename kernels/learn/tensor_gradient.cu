// tensor_gradient.cu -- gradients of PPO's and A2C's losses over minibatches, by matrix units.
//
// Tiles of ROWS rows of a minibatch are shared out among `pieces` blocks, each of which adds up those that it has in one order:
// the same bits in each run on the same GPU, other ones than on another.
// Constants: those of tensor.cuh, minibatches.cuh and loss.cuh.
#include "learn/tensor.cuh"
#include "learn/tile.cuh"

struct Workspace {
  AnyTower<Tower> tower;
  int row[ROWS];               // as `Place` takes them; -1: none
  float sums[REPORTED * WARPS];
};

// What one member loads of a tile, ahead of its use: some rows' numbers, or entries of observations.
constexpr int OWN_ROWS = own_count(ROWS), OWN_ENTRIES = own_count(ROWS * OBS);
constexpr bool ENTRIES_AHEAD = OWN_ENTRIES <= 8;

// Puts entry d of the observation of row m to where `forward` reads it.
template <int T> DEVICE void put_entry(const Learn& call, Tower<T>& tower, const int m, const int d, const float x) {
  tower.observations().row(m)[d] = seen(x, call.center, call.scale, d);
}

// Tiles share, share + shares, ... of minibatch (epoch, minibatch): the gradient of tower T.
template <int T>
DEVICE void learn_tower(TowerNumber<T>, const TensorLearn& about, const Team team, Workspace& work, const int share,
                        const int shares, float* sums) {
  const Learn& call = about.learn;
  Tower<T>& tower = work.tower.of<T>();
  const Chunks chunks(about.table, call.blocks, about.table + 2);
  const int count = chunks.rows;
  const int* const order = call.epoch_order(call.epoch);
  const auto row_of = [&](int i) INLINED { return i < count ? order[chunks.place(i)] : -1; };
  // visit(k, m): the k-th of this member's rows is m.
  const auto each_row = [&](auto visit) INLINED {
    UNROLL for (int k = 0; k < OWN_ROWS; ++k) {
      const int m = team.rank + k * TEAM;
      if (ROWS % TEAM == 0 || m < ROWS) visit(k, m);
    }
  };
  // visit(k, m, d): the k-th of its entries is entry d of the observation of row m.
  const auto each_entry = [&](auto visit) INLINED {
    UNROLL_TIMES(ENTRIES_AHEAD ? OWN_ENTRIES : 1) for (int k = 0; k < OWN_ENTRIES; ++k) {
      const int i = team.rank + k * TEAM;
      if (ROWS * OBS % TEAM == 0 || i < ROWS * OBS) visit(k, i / OBS, i % OBS);
    }
  };
  float entries[ENTRIES_AHEAD ? OWN_ENTRIES : 1];
  const auto load_entries = [&]() INLINED {
    if constexpr (ENTRIES_AHEAD) each_entry([&](int k, int m, int d) INLINED { entries[k] = entry_of(call, work.row[m], d); });
  };
  // The first tile's rows are on their way while the weights still change: what the launch before this one may write, a
  // minibatch's moments or a step, is not among them.
  each_row([&](int, int m) INLINED { work.row[m] = row_of(share * ROWS + m); });
  team.sync();
  load_entries();
  await_previous();
  const float skip = *call.skip;
  const Moments moments = call.moments[call.epoch * call.minibatches + call.minibatch];
  const Coefficients of(call);
  load_tower(team, tower, about.tensors);
  if (skip > 0.0f) return;  // not before: all that is loaded first is on its way at once
  Gradient<T> gradient;
  gradient.clear();
  float reported[REPORTED] = {};
  for (int first = share * ROWS; first < count; first += shares * ROWS) {
    each_entry([&](int k, int m, int d) INLINED {
      put_entry(call, tower, m, d, ENTRIES_AHEAD ? entries[ENTRIES_AHEAD ? k : 0] : entry_of(call, work.row[m], d));
    });
    // What is needed after the forward pass, or for the next tile, is on its way during it.
    Transition row[OWN_ROWS];
    int next[OWN_ROWS];
    bool there[OWN_ROWS];
    each_row([&](int k, int m) INLINED {
      there[k] = work.row[m] >= 0;
      if (there[k]) row[k].load(call, Place(call, work.row[m]));
      next[k] = row_of(first + shares * ROWS + m);
    });
    team.sync();
    forward(team, tower);
    each_row([&](int k, int m) INLINED {
      float metric[METRICS];
      differentiate<T>(of, tower, m, there[k], row[k], moments, metric);
      UNROLL for (int j = 0; j < REPORTED; ++j) reported[j] += metric[j];
      work.row[m] = next[k];
    });
    team.sync();
    load_entries();
    backward(team, tower, gradient);
    team.sync();  // rows are written again
  }
  gradient.store(team, sums);
  sum_members(team, reported, work.sums, [&](int k, float sum) INLINED { sums[GRADIENT_FLOATS - METRICS + k] = sum; });
}

// Where a thread's sums leave registers for it, two blocks of 256 threads or three of 128 wait in turn on a processor. A compiler
// that is not told gives a thread what it likes: NVRTC 13.0 gave 154 registers, which left one block of 256.
constexpr int SUMS_OF_FIRST = sizeof(Gradient<0>) / sizeof(float), SUMS_OF_LAST = sizeof(Gradient<TOWERS - 1>) / sizeof(float);
constexpr int MOST_SUMS = SUMS_OF_FIRST > SUMS_OF_LAST ? SUMS_OF_FIRST : SUMS_OF_LAST;
#define BUSY_THREADS (TEAM > 128 ? (MOST_SUMS > 64 ? 1 : 2) * TEAM : (MOST_SUMS > 100 ? 1 : 3) * TEAM)
#include "drive/launch.cuh"
KERNEL_AHEAD(tensor_gradient, TensorLearn, call.learn.pieces, learn_piece(call, team, *work, e))
