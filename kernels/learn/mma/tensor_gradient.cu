// tensor_gradient.cu -- gradients of PPO's and A2C's losses over minibatches, on tensor cores.
//
// Tiles of ROWS rows are split among `pieces` blocks, each of which adds its own in order: the same bits in each run on the same
// kind of GPU.
#include "learn/mma/tower_gradient.cuh"

struct Workspace {
  AnyTower<Tower> tower;
  TileMemory tile;
};

// Tiles share, share + shares, ... of minibatch (epoch, minibatch): the gradient of tower T.
template <int T>
DEVICE void learn_tower(TowerNumber<T>, const TensorLearn& about, const Team team, Workspace& work, const int share,
                        const int shares, float* sums) {
  const Learn& call = about.learn;
  Tower<T>& tower = work.tower.of<T>();
  const Chunks chunks(call, call.epoch, about.table, about.table + 2);
  each_own_row(team, [&](int, int m) INLINED { work.tile.row[m] = chunks.row(share * ROWS + m); });
  team.sync();
  // The first tile's rows are prefetched before the launch before this one ends: it writes neither them nor their order.
  const auto begin = [&]() INLINED {
    await_previous();
    const float skip = *call.skip;
    const Losses losses{Coefficients(call), call.moments[call.epoch * call.minibatches + call.minibatch], true};
    load_tower(team, tower, about.tensors);
    return Losses{losses.of, losses.moments, !(skip > 0.0f)};  // not before: all that is loaded first is on its way at once
  };
  const auto report = [&](int k, float sum) INLINED { sums[GRADIENT_FLOATS - METRICS + k] = sum; };
  add_tiles(call, tower, work.tile, chunks, team, share, shares, sums, begin, report);
}

// A processor has two blocks of 256 threads, or three of 128, where the accumulators leave registers for that. NVRTC 13.0 by itself
// took 154 registers, which left one block of 256.
constexpr int SUMS_OF_FIRST = sizeof(Gradient<0>) / sizeof(float), SUMS_OF_LAST = sizeof(Gradient<TOWERS - 1>) / sizeof(float);
constexpr int MOST_SUMS = SUMS_OF_FIRST > SUMS_OF_LAST ? SUMS_OF_FIRST : SUMS_OF_LAST;
#define BUSY_THREADS (TEAM > 128 ? (MOST_SUMS > 64 ? 1 : 2) * TEAM : (MOST_SUMS > 100 ? 1 : 3) * TEAM)
#include "drive/launch.cuh"
KERNEL_AHEAD(tensor_gradient, TensorLearn, call.learn.pieces, learn_piece(call, team, *work, e))
