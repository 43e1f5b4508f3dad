// group_gradient.cu -- tensor_gradient.cu for many rows, by blocks of one warpgroup.
#include "learn/hopper/group_tower.cuh"

struct Workspace {
  AnyTower<Tower> tower;
  TileRows rows;
  int chunks[2 * MOST_BLOCKS];  // what struct Chunks reads
  float sums[REPORTED * WARPS];
};

// Tiles share, share + shares, ... of minibatch (epoch, minibatch): the gradient of tower T.
template <int T>
DEVICE void learn_tower(TowerNumber<T>, const TensorLearn& about, const Team team, Workspace& work, const int share,
                        const int shares, float* gradients) {
  const Learn& call = about.learn;
  Tower<T>& tower = work.tower.of<T>();
  const Chunks chunks(call, call.epoch, about.table, work.chunks);
  const int count = chunks.rows, stride = shares * ROWS;
  for (int i : team.each(2 * call.blocks)) work.chunks[i] = about.table[2 + i];
  team.sync();
  TileRows::each(team, [&](int, int m) INLINED {
    const int first = chunks.row(share * ROWS + m), second = chunks.row(share * ROWS + stride + m);
    work.rows.row[0][m] = first;
    work.rows.row[1][m] = second;
  });
  team.sync();  // equal(dropped sync): a CPU has finished it at once
  WarpEntries ahead;
  ahead.load(call, team, work.rows.row[0]);
  await_previous();
  const float skip = *call.skip;
  const Moments moments = call.moments[call.epoch * call.minibatches + call.minibatch];
  const Coefficients of(call);
  load_tower(team, tower, about.tensors);
  if (skip > 0.0f) return;  // not before: all that is loaded first is on its way at once
  Gradient<T> gradient;
  gradient.clear();
  float reported[REPORTED] = {};
  fence_async_proxy();
  team.sync();
  int first = share * ROWS, turn = 0;
  do {  // once also where there is no row: the compiler then sees that the products which are awaited behind it began in it
    add_tile(call, of, moments, team, tower, work.rows, turn, ahead, gradient, reported, [&](int m) INLINED {
      return chunks.row(first + 2 * stride + m);
    });
    first += stride;
    turn ^= 1;
  } while (first < count);
  wgmma_wait();
  team.sync();  // equal(dropped sync): a CPU has finished it at once
  gradient.store(team, tower, gradients);
  sum_members(team, reported, work.sums, [&](int k, float sum) INLINED { gradients[GRADIENT_FLOATS - METRICS + k] = sum; });
}

// How many threads have registers on a processor depends on the sums that one has.
#define BUSY_THREADS (sums_of(0) > 64 || sums_of(TOWERS - 1) > 64 ? 256 : 384)
#include "drive/launch.cuh"
KERNEL_AHEAD(group_gradient, TensorLearn, call.learn.pieces, learn_piece(call, team, alone(work), e))
