// gradient.cu -- Gradients of the PPO and A2C losses over minibatches, in the order of sums of minibatches.cuh.
// Constants: those of network.cuh, minibatches.cuh and loss.cuh, PACKED_IN_SHARED and CHUNK_IN_SHARED (1: a GPU keeps the packed
// weights, or a chunk's accumulators, in shared memory).
// call: kernel arguments (drive/launch.cuh).
#include "learn/exact/network.cuh"
#include "learn/loss.cuh"
#if ALONE
#include "learn/exact/splits.cuh"
#endif

// mutant(swap >): CPU compilers make an empty array. mutant(constant 2): more room, never read
constexpr int at_least_one(int n) { return n > 0 ? n : 1; }

struct Workspace {
  Tile tile;
  alignas(16) float spare[at_least_one(SPARE_FLOATS)];
  alignas(16) float packed[at_least_one(PACKED_IN_SHARED * PACKED_FLOATS)];
  alignas(16) float chunk[at_least_one(CHUNK_IN_SHARED * GRADIENT_FLOATS)];
  int row[TILE];               // rows of the tile, as `order` numbers them
  float metric[TILE][METRICS];
};

// Rows of a chunk, in the order of learning.
struct ShuffledRows {
  const int* order;
  int count;
};

DEVICE const Observed* observation(const Learn& call, const int row) {
  const RowIndex place(call, row);
  return observed(call.obs[place.group], place.row);
}

// Add the gradient of rows [from, until) of `order` to `sums`. finite: result of may_skip. next: the rows that follow, whose first
// observations a CPU thread prefetches.
DEVICE void learn_chunk(const Learn& call, const Team team, Workspace& work, const Moments moments, const int* order,
                        const int from, const int until, const float* packed, Sums sums, [[maybe_unused]] const bool finite,
                        [[maybe_unused]] const ShuffledRows next) {
  const Coefficients of(call);
  for (int at = from; at < until; at += TILE) {  // mutant(swap <): a tile without rows
    const int count = until - at < TILE ? until - at : TILE;
    // Load a tile of observations.
    for (int m : team.each(count)) work.row[m] = order[at + m];
    // Rows are written before others read. mutant(swap >): all threads call one more sync.
    if constexpr (THREADS_PER_ROW > 1) team.sync();
    for (int i : team.each(count * THREADS_PER_ROW)) {
      const int m = i / THREADS_PER_ROW;
      read_observation(work.tile, m, i % THREADS_PER_ROW, observation(call, work.row[m]), call.center, call.scale);
    }
    team.sync();  // the observations are written before the forward pass reads them
    find_zeros(work.tile, count, finite);
    forward(team, work.tile, count, packed);
    // Differentiate the loss of each row w.r.t. the outputs of the network.
    for (int m : team.each(count)) {
#if ALONE
      const int ahead = at + TILE + m;
      if (ahead < until) fetch_observation(observation(call, order[ahead]));
      else if (until - at <= TILE && m < next.count) fetch_observation(observation(call, next.order[m]));
#endif
      Transition row;
      row.load(call, RowIndex(call, work.row[m]));
      differentiate_row(of, row, moments, work.tile.parameters(m), *work.tile.value(m), work.metric[m]);
    }
    team.sync();  // all output gradients are written before the backward pass reads them
    sums.first = at == from;
    sums.last = until - at <= TILE;
    backward(team, work.tile, work.spare, count, packed, sums);
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
    for (int k : after(team, TEAM / 2).each(METRICS)) {  // mutant(swap /): other threads add the same
      float sum = at == from ? 0.0f : reported[k];
      UNROLL_TIMES(4) for (int m = 0; m < count; ++m) sum += work.metric[m][k];
      reported[k] = sum;
    }
#endif
    team.sync();  // the tile is read before the next one overwrites it
  }
}

// Compute the partial gradient of one split in minibatch (epoch, minibatch): the sum over the split's blocks of environments.
DEVICE void learn_split(const Learn& call, const Team team, Workspace& work, const int split) {
  if (*call.skip > 0.0f) return;
#if ALONE
  const float* const packed = call.packed;
  const Moments moments = call.moments[call.epoch * call.minibatches + call.minibatch];
  const bool finite = may_skip(packed);
  const auto chunk_of = [&](int b) INLINED {
    const int begin = call.first_env(b) * call.rows_of_env(), rows = call.first_env(b + 1) * call.rows_of_env() - begin;
    const int from = call.part(call.minibatch, rows);
    return ShuffledRows{call.epoch_order(call.epoch) + begin + from, call.part(call.minibatch + 1, rows) - from};
  };
  // One CPU thread adds each number of a chunk while it is in a register.
  add_chunks<METRICS>(
      call, split, call.chunks + (size_type)split * SCRATCH_FLOATS, call.partial_sums + (size_type)split * GRADIENT_FLOATS,
      [&](int b) INLINED { return chunk_of(b).count; },
      [&](int b, const Sums& sums) INLINED {
        const ShuffledRows own = chunk_of(b), next = b + 1 < call.blocks ? chunk_of(b + 1) : ShuffledRows{};
        learn_chunk(call, team, work, moments, own.order, 0, own.count, packed, sums, finite, next);
      });
#else
  const int first_block = split_begin(split, call.blocks, call.splits),
      last_block = split_begin(split + 1, call.blocks, call.splits);
  float* const sums = call.partial_sums + (size_type)split * GRADIENT_FLOATS;
  float* const chunk = CHUNK_IN_SHARED ? work.chunk : call.chunks + (size_type)split * GRADIENT_FLOATS;
  const float* const packed = PACKED_IN_SHARED ? work.packed : call.packed;
  const Moments moments = call.moments[call.epoch * call.minibatches + call.minibatch];
  if constexpr (PACKED_IN_SHARED) copy_to_shared<PACKED_FLOATS>(team, work.packed, call.packed);
  if constexpr (CHUNK_IN_SHARED) for (int i : team.each(GRADIENT_FLOATS)) chunk[i] = 0.0f;  // padding stays 0
  // Add the gradients of the blocks' chunks, in order.
  bool begun = false;
  for (int b = first_block; b < last_block; ++b) {
    const int begin = call.first_env(b) * call.rows_of_env(), rows = call.first_env(b + 1) * call.rows_of_env() - begin;
    const int from = call.part(call.minibatch, rows), until = call.part(call.minibatch + 1, rows);
    if (from == until) continue;
    learn_chunk(call, team, work, moments, call.epoch_order(call.epoch) + begin, from, until, packed, Sums{chunk}, false,
                ShuffledRows{});
    // Add the chunk to the split's gradient.
    for (int segment : team.each(GRADIENT_FLOATS / SEGMENT)) {
      Lanes<SEGMENT> sum{}, more;
      if (begun) sum.load(sums + segment * SEGMENT);
      more.load(chunk + segment * SEGMENT);
      sum.add(more);
      sum.store(sums + segment * SEGMENT);
    }
    begun = true;
    team.sync();  // the chunk is read before the next one overwrites it. mutant(dropped sync): a forward pass's syncs come before
  }
  if (!begun) for (int i : team.each(GRADIENT_FLOATS)) sums[i] = 0.0f;
#endif
}

#include "drive/launch.cuh"
KERNEL(gradient, Learn, call.splits, learn_split(call, team, *work, e))
