// group_gradient.cu -- tensor_gradient.cu for many rows, in blocks of one warpgroup.
//
// call: kernel arguments (drive/launch.cuh).
#include "learn/hopper/group_tower.cuh"

struct Workspace {
  AnyTower<Tower> tower;
  TileRows rows;
  int chunks[2 * MOST_BLOCKS];  // arrays of struct Chunks
  float sums[REPORTED * WARPS];
};

// Compute the gradient of tower T over tiles first_tile, first_tile + teams, ... of minibatch (epoch, minibatch).
template <int T>
DEVICE void learn_tower(TowerNumber<T>, const TensorLearn& about, const Team team, Workspace& work, const int first_tile,
                        const int teams, float* gradients) {
  const Learn& call = about.learn;
  Tower<T>& tower = work.tower.of<T>();
  const Chunks chunks(call, call.epoch, about.table, work.chunks);
  const int count = chunks.rows, stride = teams * ROWS;
  // Copy the table of rows, and look up the rows of the first two tiles.
  for (int i : team.each(2 * call.blocks)) work.chunks[i] = about.table[2 + i];
  team.sync();  // the table is written before it is read
  TileRows::each(team, [&](int, int m) INLINED {
    const int first = chunks.row(first_tile * ROWS + m), second = chunks.row(first_tile * ROWS + stride + m);
    work.rows.row[0][m] = first;
    work.rows.row[1][m] = second;
  });
  team.sync();  // rows are written before they are read. mutant(dropped sync): a CPU finishes immediately
  // Prefetch observations, which the previous launch does not write.
  WarpEntries ahead;
  ahead.load(call, team, work.rows.row[0]);
  await_previous();
  const float skip = *call.skip;
  const Moments moments = call.moments[call.epoch * call.minibatches + call.minibatch];
  const Coefficients of(call);
  load_tower(team, tower, about.tensors);
  if (skip > 0.0f) return;  // tested last, so that all loads above overlap
  Gradient<T> gradient;
  gradient.clear();
  float reported[REPORTED] = {};
  fence_async_proxy();
  team.sync();  // weights and rows are written before wgmma and other threads read them
  // Accumulate the gradients of the tiles. `turn` is the buffer of the current one.
  int first = first_tile * ROWS, turn = 0;
  do {  // at least once, so that the compiler sees that the products awaited below began in the loop
    add_tile(call, of, moments, team, tower, work.rows, turn, ahead, gradient, reported, [&](int m) INLINED {
      return chunks.row(first + 2 * stride + m);
    });
    first += stride;
    turn ^= 1;
  } while (first < count);
  wgmma_wait();
  team.sync();  // all warps' products are complete before memory is reused. mutant(dropped sync): a CPU finishes immediately
  gradient.store(team, tower, gradients);
  sum_members(team, reported, work.sums, [&](int k, float sum) INLINED { gradients[GRADIENT_FLOATS - METRICS + k] = sum; });
}

// Threads that have enough registers on an SM. This depends on the accumulators of each.
#define BUSY_THREADS (sums_of(0) > 64 || sums_of(TOWERS - 1) > 64 ? 256 : 384)
#include "drive/launch.cuh"
KERNEL_AHEAD(group_gradient, TensorLearn, call.learn.splits, learn_split(call, team, alone(work), e))
