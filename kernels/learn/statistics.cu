// statistics.cu -- Mean and variance of the columns of an array, and the discounted returns whose deviation scales rewards.
//
// A chunk is the rows of one block (minibatches.cuh) in one slice of neighboring steps. The rows of a chunk are added in order,
// then the chunks. Bits therefore depend only on the total numbers of environments, steps and agents. Running totals are in double
// precision.
// Source: Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
// Letters: T steps, N environments, C agents, D columns, B blocks of all processes, S slices of the steps, K = B S chunks.
// call: kernel arguments (drive/launch.cuh).
#include "drive/math.cuh"
#include "learn/sums.cuh"

struct Workspace {};
struct Statistics {
  int num_envs, agents, steps, columns;  // N, C, T, D
  int all_envs, all_blocks;   // environments and blocks (B) of all processes
  int blocks, first_block;    // blocks of this process: number, index of the first one among all
  int envs_before, slices;    // environments in the blocks before it, S
  const float* values;        // (T, N, C, D)
  const u8* active;           // (T, N, C) or null: not 0 in rows that count
  int* counts;                // (K): rows that count
  float* sums;                // (K, D)
  float* mean;                // (D)
  float* squares;             // (K, D): sums of squared differences from the mean
  float* variance;            // (D)
  double* running_mean;       // (D): mean over all rows merged so far
  double* running_variance;   // (D)
  double* count;              // (1): number of these rows
};
struct Scaling {
  int columns;
  const double* mean;      // (D)
  const double* variance;  // (D)
  float* center;           // (D), or null
  float* scale;            // (D): reciprocal standard deviation
};
struct Accumulate {
  int num_envs, agents, steps;
  const float* gamma;      // (1)
  const float* reward;     // (T, N, C)
  const u8* terminated;    // (T, N)
  const u8* truncated;     // (T, N)
  const u8* active;        // (T, N, C) or null
  const u8* held;          // (N, C) or null: not 0 where the last active step lies in an earlier rollout (train/advantages.cu)
  u8* counts;              // (T, N, C) or null: 1 in rows of active steps, and in row 0 where a held one was rewarded
  float* running;          // (N, C): discounted return so far, 0 at the beginning of an episode
  float* returns;          // (T, N, C): discounted return after each step, including rewards of a pause that follows it
};

// Return the number of rows that count, of all processes.
DEVICE i64 all_rows(const Statistics& call) {
  if (call.active == nullptr) return (i64)call.steps * call.all_envs * call.agents;
  i64 rows = 0;
  for (int chunk = 0; chunk < call.all_blocks * call.slices; ++chunk) rows += call.counts[chunk];
  return rows;
}

// Column e % D of chunk e / D of this process.
struct Column {
  int column;
  int chunk_of_all;
  size_type place;         // offset in `sums` and `squares`
  int first_env, end_env;  // within this process
  int first_step, end_step;
  DEVICE Column(const Statistics& call, const int e) {
    const int chunk = e / call.columns, block = chunk / call.slices, slice = chunk - block * call.slices;
    const int of_all = call.first_block + block;
    column = e - chunk * call.columns;
    chunk_of_all = of_all * call.slices + slice;
    place = (size_type)chunk_of_all * call.columns + column;
    first_env = split_begin(of_all, call.all_envs, call.all_blocks) - call.envs_before;
    end_env = split_begin(of_all + 1, call.all_envs, call.all_blocks) - call.envs_before;
    first_step = split_begin(slice, call.steps, call.slices);  // mutant(swapped arguments 1): the product fits into 32 bits
    end_step = split_begin(slice + 1, call.steps, call.slices);
  }
  // Call visit(value) for each row that counts.
  template <class Visit> DEVICE void each(const Statistics& call, const Visit visit) const {
    if (call.active == nullptr) visit_rows<false>(call, visit);
    else visit_rows<true>(call, visit);
  }
  template <bool PAUSES, class Visit> DEVICE void visit_rows(const Statistics& call, const Visit visit) const {
    for (int t = first_step; t < end_step; ++t) {
      const size_type step = (size_type)t * call.num_envs * call.agents;
      for (int row = first_env * call.agents; row < end_env * call.agents; ++row) {
        if (!PAUSES || call.active[step + row]) visit(call.values[(step + row) * call.columns + column]);
      }
    }
  }
};

DEVICE void sum_column(const Statistics& call, const int e) {
  const Column own(call, e);
  float sum = 0.0f;
  int count = 0;
  own.each(call, [&](const float value) INLINED {
    sum += value;
    count += 1;
  });
  call.sums[own.place] = sum;
  if (call.active != nullptr && own.column == 0) call.counts[own.chunk_of_all] = count;
}

DEVICE void square_column(const Statistics& call, const int e) {
  const Column own(call, e);
  const float mean = call.mean[own.column];
  float sum = 0.0f;
  own.each(call, [&](const float value) INLINED {
    const float delta = value - mean;
    sum = math::fma(delta, delta, sum);
  });
  call.squares[own.place] = sum;
}

// Return the mean over all rows, from the sums of all chunks in one column. Adds in double precision because chunks may be many.
DEVICE float mean_of_chunks(const Statistics& call, const float* sums, const int column) {
  double sum = 0.0;
  for (int chunk = 0; chunk < call.all_blocks * call.slices; ++chunk) {
    sum += (double)sums[(size_type)chunk * call.columns + column];
  }
  const i64 rows = all_rows(call);
  return (float)(sum / (double)(rows > 0 ? rows : 1));  // mutant(constant 2): no rows sum to 0
}

// Merge the moments of these rows into the running ones.
DEVICE void merge_column(const Statistics& call, const int column) {
  const double rows = (double)all_rows(call), count = *call.count, total = count + rows, mean = call.running_mean[column];
  const double delta = (double)call.mean[column] - mean;
  const double m2 =
      call.running_variance[column] * count + (double)call.variance[column] * rows + delta * delta * count * rows / total;
  call.running_mean[column] = mean + delta * rows / total;
  call.running_variance[column] = m2 / total;
}

// A root and a division, because a reciprocal square root may differ between devices.
DEVICE void scale_column(const Scaling& call, const int column) {
  if (call.center != nullptr) call.center[column] = (float)call.mean[column];
  call.scale[column] = (float)(1.0 / math::sqrt_double(call.variance[column] + 1e-8));
}

// Compute the discounted returns of row (e, i), row in [0, N * C). PAUSES: agents may be inactive.
template <bool PAUSES> DEVICE void accumulate_row(const Accumulate& call, const int row) {
  const int e = row / call.agents;
  float running = call.running[row];
  size_type credited_step = row;  // row that is credited with the rewards: the last active one, or row 0 for a held one
  bool known = PAUSES && call.held[row] & 3;
  for (int t = 0; t < call.steps; ++t) {
    const size_type step = (size_type)t * call.num_envs + e, at = (size_type)t * call.num_envs * call.agents + row;
    const bool active = !PAUSES || call.active[at];
    const float reward = call.reward[at];
    if constexpr (PAUSES) call.counts[at] = active;
    if (active) credited_step = at;
    known = known || active;
    // Add the reward to the return of the credited step.
    if (known) {
      running = (active ? *call.gamma * running : running) + reward;
      call.returns[credited_step] = running;
      if constexpr (PAUSES) { if (reward != 0.0f) call.counts[credited_step] = 1; }
    }
    if (call.terminated[step] || call.truncated[step]) {
      running = 0.0f;
      known = false;
    }
  }
  call.running[row] = running;
}
DEVICE void accumulate_agent(const Accumulate& call, const int row) {
  if (call.active == nullptr) accumulate_row<false>(call, row);
  else accumulate_row<true>(call, row);
}

#include "drive/launch.cuh"
KERNEL(sum_columns, Statistics, call.blocks * call.slices * call.columns, sum_column(call, e))
KERNEL(compute_means, Statistics, call.columns, call.mean[e] = mean_of_chunks(call, call.sums, e))
KERNEL(square_columns, Statistics, call.blocks * call.slices * call.columns, square_column(call, e))
KERNEL(compute_variances, Statistics, call.columns, call.variance[e] = mean_of_chunks(call, call.squares, e))
KERNEL(merge, Statistics, call.columns, merge_column(call, e))
KERNEL(count_rows, Statistics, 1, *call.count += (double)all_rows(call))
KERNEL(compute_scales, Scaling, call.columns, scale_column(call, e))
KERNEL(accumulate_returns, Accumulate, call.num_envs * call.agents, accumulate_agent(call, e))
