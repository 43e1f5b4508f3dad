// gradient.cu -- gradients of PPO's and A2C's losses over minibatches, in the order of sums of minibatches.cuh.
// Constants: those of network.cuh, minibatches.cuh and loss.cuh; NEAR_COPIES, NEAR_CHUNK (1: a GPU keeps the weights, or the sums
// of a chunk, in shared memory).
#include "learn/exact/network.cuh"
#include "learn/loss.cuh"

// equal(swap >): CPU compilers make an empty array; equal(constant 2): more room, never read
constexpr int at_least_one(int n) { return n > 0 ? n : 1; }

struct Workspace {
  Tile tile;
  alignas(16) float spare[at_least_one(SPARE_FLOATS)];
  alignas(16) float copies[at_least_one(NEAR_COPIES * COPIED_FLOATS)];
  alignas(16) float chunk[at_least_one(NEAR_CHUNK * GRADIENT_FLOATS)];
  int row[TILE];               // places of the tile's rows in `order`'s terms
  float metric[TILE][METRICS];
};

// Adds rows [from, until) of `order` to `chunk`, which begins at 0.
DEVICE void learn_chunk(const Learn& call, const Team team, Workspace& work, const Moments moments, const int* order,
                        const int from, const int until, const float* copies, float* chunk) {
  const Coefficients of(call);
  for (int at = from; at < until; at += TILE) {  // equal(swap <): a tile without rows
    const int count = until - at < TILE ? until - at : TILE;
    for (int m : team.each(count)) work.row[m] = order[at + m];
    if constexpr (SHARERS > 1) team.sync();  // equal(swap >): all members call one sync more
    for (int i : team.each(count * SHARERS)) {
      const int m = i / SHARERS;
      const Place place(call, work.row[m]);
      read_observation(work.tile, m, i % SHARERS, observed(call.obs[place.group], place.row), call.center, call.scale);
    }
    team.sync();
    forward(team, work.tile, count, copies);
    for (int m : team.each(count)) {
      Transition row;
      row.load(call, Place(call, work.row[m]));
      differentiate_row(of, row, moments, work.tile.parameters(m), *work.tile.value(m), work.metric[m]);
    }
    team.sync();
    backward(team, work.tile, work.spare, count, copies, chunk, at == from);
    float* const reported = chunk + GRADIENT_FLOATS - METRICS;
    for (int k : after(team, TEAM / 2).each(METRICS)) {  // equal(swap /): other members add the same
      float sum = at == from ? 0.0f : reported[k];
      UNROLL_TIMES(4) for (int m = 0; m < count; ++m) sum += work.metric[m][k];
      reported[k] = sum;
    }
    team.sync();  // the tile is written again
  }
}

// Part `piece` of the blocks: the sum of its chunks' gradients in minibatch (epoch, minibatch).
DEVICE void learn_piece(const Learn& call, const Team team, Workspace& work, const int piece) {
  if (*call.skip > 0.0f) return;
  const int first_block = share(piece, call.blocks, call.pieces), last_block = share(piece + 1, call.blocks, call.pieces);
  float* const sums = call.partials + (size_type)piece * GRADIENT_FLOATS;
  float* const chunk = NEAR_CHUNK ? work.chunk : call.chunks + (size_type)piece * GRADIENT_FLOATS;
  const float* const copies = NEAR_COPIES ? work.copies : call.copies;
  const Moments moments = call.moments[call.epoch * call.minibatches + call.minibatch];
  if constexpr (NEAR_COPIES) bring_near<COPIED_FLOATS>(team, work.copies, call.copies);
  if constexpr (NEAR_CHUNK) for (int i : team.each(GRADIENT_FLOATS)) chunk[i] = 0.0f;  // between rows it stays so
  bool begun = false;
  for (int b = first_block; b < last_block; ++b) {
    const int begin = call.first_env(b) * call.rows_of_env(), rows = call.first_env(b + 1) * call.rows_of_env() - begin;
    const int from = call.part(call.minibatch, rows), until = call.part(call.minibatch + 1, rows);
    if (from == until) continue;
    learn_chunk(call, team, work, moments, call.epoch_order(call.epoch) + begin, from, until, copies, chunk);
    for (int strip : team.each(GRADIENT_FLOATS / STRIP)) {
      Lanes<STRIP> sum{}, more;
      if (begun) sum.load(sums + strip * STRIP);
      more.load(chunk + strip * STRIP);
      sum.add(more);
      sum.store(sums + strip * STRIP);
    }
    begun = true;
    team.sync();  // equal(dropped sync): a forward pass's syncs come before
  }
  if (!begun) for (int i : team.each(GRADIENT_FLOATS)) sums[i] = 0.0f;
}

#include "drive/launch.cuh"
KERNEL(gradient, Learn, call.pieces, learn_piece(call, team, *work, e))
