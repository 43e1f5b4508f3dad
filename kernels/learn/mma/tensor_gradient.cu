// tensor_gradient.cu -- Gradients of the PPO and A2C losses over minibatches, on tensor cores.
//
// Tiles of ROWS rows are divided among `splits` blocks. Each block adds its own tiles in order, so that the bits are equal in all
// runs on the same kind of GPU. If tiles are few, BLOCKS_PER_TILE blocks compute the same rows, and each of them a part of the
// weights' gradient.
// call: kernel arguments (drive/launch.cuh).
#include "learn/mma/tower_gradient.cuh"

struct Workspace {
  AnyTower<Tower> tower;
  TileMemory tile;
};
// A block, and the team with its ranks among the blocks that share a tile.
struct Sharing {
  Workspace& work;
  const Team adding;
};

// Compute the gradient of tower T over tiles first_tile, first_tile + teams, ... of minibatch (epoch, minibatch).
template <int T>
DEVICE void learn_tower(TowerNumber<T>, const TensorLearn& about, const Team team, const Sharing& block, const int first_tile,
                        const int teams, float* sums) {
  Workspace& work = block.work;
  const Learn& call = about.learn;
  Tower<T>& tower = work.tower.of<T>();
  const Chunks chunks(call, call.epoch, about.table, about.table + 2);
  each_own_row(team, [&](int, int m) INLINED { work.tile.row[m] = chunks.row(first_tile * ROWS + m); });
  team.sync();  // rows are written before other threads read them
  // The first tile's rows are prefetched before the previous launch ends, which writes neither them nor their order.
  const auto begin = [&]() INLINED {
    await_previous();
    const float skip = *call.skip;
    const Losses losses{Coefficients(call), call.moments[call.epoch * call.minibatches + call.minibatch], true};
    load_tower(team, tower, about.tensors);
    return Losses{losses.of, losses.moments, !(skip > 0.0f)};  // tested last, so that all loads above overlap
  };
  const auto report = [&](int k, float sum) INLINED { sums[GRADIENT_FLOATS - METRICS + k] = sum; };
  add_tiles(call, tower, work.tile, chunks, team, block.adding, first_tile, teams, sums, begin, report);
}
DEVICE void learn_block(const TensorLearn& call, const Team team, Workspace& work, const int e) {
  Team adding = team;
  adding.rank += e % BLOCKS_PER_TILE * TEAM;
  const Sharing block{work, adding};
  learn_split(call, team, block, e / BLOCKS_PER_TILE);
}

// An SM has two blocks of 256 threads, or three of 128, if the accumulators leave enough registers. Without this limit NVRTC 13.0
// used 154 registers, which left one block of 256.
// Blocks that share a tile have an SM each.
constexpr int SUMS_OF_FIRST = sizeof(Gradient<0>) / sizeof(float), SUMS_OF_LAST = sizeof(Gradient<TOWERS - 1>) / sizeof(float);
constexpr int MOST_SUMS = SUMS_OF_FIRST > SUMS_OF_LAST ? SUMS_OF_FIRST : SUMS_OF_LAST;
#define BUSY_THREADS (BLOCKS_PER_TILE > 1 ? TEAM : TEAM > 128 ? (MOST_SUMS > 64 ? 1 : 2) * TEAM : (MOST_SUMS > 100 ? 1 : 3) * TEAM)
#include "drive/launch.cuh"
KERNEL_AHEAD(tensor_gradient, TensorLearn, call.learn.splits * BLOCKS_PER_TILE, learn_block(call, team, *work, e))
