// gradient.cu -- Gradients of the PPO and A2C losses over minibatches, in the order of sums of minibatches.cuh.
// Constants: those of network.cuh, minibatches.cuh and loss.cuh, NEAR_COPIES and NEAR_CHUNK (1: a GPU keeps the packed weights, or
// a chunk's accumulators, in shared memory).
#include "learn/exact/network.cuh"
#include "learn/loss.cuh"
#if ALONE
#include "learn/exact/pieces.cuh"
#endif

// equal(swap >): CPU compilers make an empty array. equal(constant 2): more room, never read
constexpr int at_least_one(int n) { return n > 0 ? n : 1; }

struct Workspace {
  Tile tile;
  alignas(16) float spare[at_least_one(SPARE_FLOATS)];
  alignas(16) float copies[at_least_one(NEAR_COPIES * COPIED_FLOATS)];
  alignas(16) float chunk[at_least_one(NEAR_CHUNK * GRADIENT_FLOATS)];
  int row[TILE];               // rows of the tile, as `order` numbers them
  float metric[TILE][METRICS];
};

// Rows of a chunk, in their order.
struct Drawn {
  const int* order;
  int count;
};

DEVICE const Observed* observation(const Learn& call, const int row) {
  const Place place(call, row);
  return observed(call.obs[place.group], place.row);
}

// Add the gradient of rows [from, until) of `order` to `sums`. finite: result of may_skip. next: the rows that follow, whose first
// observations a CPU thread prefetches.
DEVICE void learn_chunk(const Learn& call, const Team team, Workspace& work, const Moments moments, const int* order,
                        const int from, const int until, const float* copies, Sums sums, [[maybe_unused]] const bool finite,
                        [[maybe_unused]] const Drawn next) {
  const Coefficients of(call);
  for (int at = from; at < until; at += TILE) {  // equal(swap <): a tile without rows
    const int count = until - at < TILE ? until - at : TILE;
    // Load a tile of observations.
    for (int m : team.each(count)) work.row[m] = order[at + m];
    if constexpr (SHARERS > 1) team.sync();  // rows are written before others read. equal(swap >): all threads call one more sync
    for (int i : team.each(count * SHARERS)) {
      const int m = i / SHARERS;
      read_observation(work.tile, m, i % SHARERS, observation(call, work.row[m]), call.center, call.scale);
    }
    team.sync();  // the observations are written before the forward pass reads them
    look(work.tile, count, finite);
    forward(team, work.tile, count, copies);
    // Differentiate the loss of each row by the outputs of the network.
    for (int m : team.each(count)) {
#if ALONE
      const int ahead = at + TILE + m;
      if (ahead < until) fetch_observation(observation(call, order[ahead]));
      else if (until - at <= TILE && m < next.count) fetch_observation(observation(call, next.order[m]));
#endif
      Transition row;
      row.load(call, Place(call, work.row[m]));
      differentiate_row(of, row, moments, work.tile.parameters(m), *work.tile.value(m), work.metric[m]);
    }
    team.sync();  // all output gradients are written before the backward pass reads them
    sums.first = at == from;
    sums.last = until - at <= TILE;
    backward(team, work.tile, work.spare, count, copies, sums);
// Add the reported metrics in the order of rows.
#if ALONE
    Lanes<METRICS> reported, more;
    sums.begin(CHUNK_FLOATS - METRICS, reported);
    for (int m = 0; m < count; ++m) {
      more.load(work.metric[m]);
      reported.add(more);
    }
    sums.end(CHUNK_FLOATS - METRICS, reported);
#else
    float* const reported = sums.chunk + GRADIENT_FLOATS - METRICS;
    for (int k : after(team, TEAM / 2).each(METRICS)) {  // equal(swap /): other threads add the same
      float sum = at == from ? 0.0f : reported[k];
      UNROLL_TIMES(4) for (int m = 0; m < count; ++m) sum += work.metric[m][k];
      reported[k] = sum;
    }
#endif
    team.sync();  // the tile is read before the next one overwrites it
  }
}

// Add up the gradients of all chunks of piece `piece` of the blocks in minibatch (epoch, minibatch).
DEVICE void learn_piece(const Learn& call, const Team team, Workspace& work, const int piece) {
  if (*call.skip > 0.0f) return;
#if ALONE
  const float* const copies = call.copies;
  const Moments moments = call.moments[call.epoch * call.minibatches + call.minibatch];
  const bool finite = may_skip(copies);
  const auto chunk_of = [&](int b) INLINED {
    const int begin = call.first_env(b) * call.rows_of_env(), rows = call.first_env(b + 1) * call.rows_of_env() - begin;
    const int from = call.part(call.minibatch, rows);
    return Drawn{call.epoch_order(call.epoch) + begin + from, call.part(call.minibatch + 1, rows) - from};
  };
  add_chunks<METRICS>(
      call, piece, call.chunks + (size_type)piece * SCRATCH_FLOATS, call.partials + (size_type)piece * GRADIENT_FLOATS,
      [&](int b) INLINED { return chunk_of(b).count; },
      [&](int b, const Sums& sums) INLINED {
        const Drawn own = chunk_of(b), next = b + 1 < call.blocks ? chunk_of(b + 1) : Drawn{};
        learn_chunk(call, team, work, moments, own.order, 0, own.count, copies, sums, finite, next);
      });
#else
  const int first_block = share(piece, call.blocks, call.pieces), last_block = share(piece + 1, call.blocks, call.pieces);
  float* const sums = call.partials + (size_type)piece * GRADIENT_FLOATS;
  float* const chunk = NEAR_CHUNK ? work.chunk : call.chunks + (size_type)piece * GRADIENT_FLOATS;
  const float* const copies = NEAR_COPIES ? work.copies : call.copies;
  const Moments moments = call.moments[call.epoch * call.minibatches + call.minibatch];
  if constexpr (NEAR_COPIES) bring_near<COPIED_FLOATS>(team, work.copies, call.copies);
  if constexpr (NEAR_CHUNK) for (int i : team.each(GRADIENT_FLOATS)) chunk[i] = 0.0f;  // padding stays 0
  bool begun = false;
  for (int b = first_block; b < last_block; ++b) {
    const int begin = call.first_env(b) * call.rows_of_env(), rows = call.first_env(b + 1) * call.rows_of_env() - begin;
    const int from = call.part(call.minibatch, rows), until = call.part(call.minibatch + 1, rows);
    if (from == until) continue;
    learn_chunk(call, team, work, moments, call.epoch_order(call.epoch) + begin, from, until, copies, Sums{chunk}, false, Drawn{});
    // Add the chunk to the piece's gradient.
    for (int strip : team.each(GRADIENT_FLOATS / STRIP)) {
      Lanes<STRIP> sum{}, more;
      if (begun) sum.load(sums + strip * STRIP);
      more.load(chunk + strip * STRIP);
      sum.add(more);
      sum.store(sums + strip * STRIP);
    }
    begun = true;
    team.sync();  // the chunk is read before the next one overwrites it. equal(dropped sync): a forward pass's syncs come before
  }
  if (!begun) for (int i : team.each(GRADIENT_FLOATS)) sums[i] = 0.0f;
#endif
}

#include "drive/launch.cuh"
KERNEL(gradient, Learn, call.pieces, learn_piece(call, team, *work, e))
