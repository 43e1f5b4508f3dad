// statistics.cu -- mean and variance of the columns of an array, and the discounted returns whose deviation scales rewards.
//
// Rows are shared out among chunks; a chunk's rows are added in order, then the chunks. So bits depend on the numbers of rows
// and chunks alone. What all rows so far have is kept in double precision.
// Source: Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
// Letters: R rows, D columns, K chunks; T steps, N environments, C agents.
#include "drive/math.cuh"

struct Workspace {};
struct Statistics {
  int rows, columns, chunks;  // R, D, K
  const float* values;        // (R, D)
  float* sums;                // (K, D)
  float* mean;                // (D)
  float* squares;             // (K, D): of what values differ from the mean
  float* variance;            // (D)
  double* mean_so_far;        // (D): of all rows that were ever taken in, these included once they are merged
  double* variance_so_far;    // (D)
  double* count;              // (1): how many they are
};
struct Scaling {
  int columns;
  const double* mean;      // (D)
  const double* variance;  // (D)
  float* center;           // (D), or null
  float* scale;            // (D): one over the deviation
};
struct Follow {
  int num_envs, agents, steps;
  const float* gamma;      // (1)
  const float* reward;     // (T, N, C)
  const u8* terminated;    // (T, N)
  const u8* truncated;     // (T, N)
  float* running;          // (N, C): the discounted return so far, 0 when an episode begins
  float* returns;          // (T, N, C): the same after each step
};

DEVICE int first_row(const Statistics& call, int chunk) { return (int)((i64)chunk * call.rows / call.chunks); }

// Element e: chunk e / D, column e % D.
DEVICE void sum_column(const Statistics& call, const int e) {
  const int chunk = e / call.columns, column = e - chunk * call.columns;
  float sum = 0.0f;
  for (int row = first_row(call, chunk); row < first_row(call, chunk + 1); ++row) {
    sum += call.values[(size_type)row * call.columns + column];
  }
  call.sums[e] = sum;
}

DEVICE void square_column(const Statistics& call, const int e) {
  const int chunk = e / call.columns, column = e - chunk * call.columns;
  const float mean = call.mean[column];
  float sum = 0.0f;
  for (int row = first_row(call, chunk); row < first_row(call, chunk + 1); ++row) {
    const float apart = call.values[(size_type)row * call.columns + column] - mean;
    sum = math::fma(apart, apart, sum);
  }
  call.squares[e] = sum;
}

// The mean over all rows of what chunks have added up in one column.
DEVICE float mean_of_chunks(const Statistics& call, const float* sums, const int column) {
  float sum = 0.0f;
  for (int chunk = 0; chunk < call.chunks; ++chunk) sum += sums[(size_type)chunk * call.columns + column];
  return sum / (float)call.rows;
}

// Merges these rows into all so far.
DEVICE void merge_column(const Statistics& call, const int column) {
  const double rows = (double)call.rows, count = *call.count, total = count + rows, mean = call.mean_so_far[column];
  const double apart = (double)call.mean[column] - mean;
  const double spread =
      call.variance_so_far[column] * count + (double)call.variance[column] * rows + apart * apart * count * rows / total;
  call.mean_so_far[column] = mean + apart * rows / total;
  call.variance_so_far[column] = spread / total;
}

// A root and a quotient: a reciprocal root in one may differ by device.
DEVICE void scale_column(const Scaling& call, const int column) {
  if (call.center != nullptr) call.center[column] = (float)call.mean[column];
  call.scale[column] = (float)(1.0 / math::sqrt_double(call.variance[column] + 1e-8));
}

// Row (e, i) of [0, N * C).
DEVICE void follow_row(const Follow& call, const int row) {
  const int e = row / call.agents;
  float running = call.running[row];
  for (int t = 0; t < call.steps; ++t) {
    const size_type step = (size_type)t * call.num_envs + e, at = (size_type)t * call.num_envs * call.agents + row;
    running = *call.gamma * running + call.reward[at];
    call.returns[at] = running;
    if (call.terminated[step] || call.truncated[step]) running = 0.0f;
  }
  call.running[row] = running;
}

#include "drive/launch.cuh"
KERNEL(sum_columns, Statistics, call.chunks * call.columns, sum_column(call, e))
KERNEL(find_means, Statistics, call.columns, call.mean[e] = mean_of_chunks(call, call.sums, e))
KERNEL(square_columns, Statistics, call.chunks * call.columns, square_column(call, e))
KERNEL(find_variances, Statistics, call.columns, call.variance[e] = mean_of_chunks(call, call.squares, e))
KERNEL(merge, Statistics, call.columns, merge_column(call, e))
KERNEL(count_rows, Statistics, 1, *call.count += (double)call.rows)
KERNEL(find_scales, Scaling, call.columns, scale_column(call, e))
KERNEL(follow_returns, Follow, call.num_envs * call.agents, follow_row(call, e))
