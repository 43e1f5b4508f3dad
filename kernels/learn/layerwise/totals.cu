// totals.cu -- Sums over the rows of several matrices in one launch, such as bias gradients and sums over blocks.
//
// Each team adds the rows of COLUMNS columns: ROWS_IN_PARALLEL partial sums, of which number s adds rows s, s + ROWS_IN_PARALLEL,
// ..., in order.
// Constants: MATRICES (maximum of a launch). Generated: HALF 1.
// call: kernel arguments (drive/launch.cuh).
#include "learn/layerwise/row.cuh"

// mutant(swap >, swap /): any number of rows gives the sums of the tests, which are integers
constexpr int COLUMNS = 32, ROWS_IN_PARALLEL = TEAM > COLUMNS ? TEAM / COLUMNS : 1;

struct Workspace { float sum[ROWS_IN_PARALLEL * COLUMNS]; };

// Row r of matrix k begins at entry r / groups * stride + r % groups * columns. Its sum i is stored at
// to[i / width * row_stride + i % width].
struct Totals {
  int begin[MATRICES + 1];  // first team of each matrix. Beyond the last matrix, the number of all teams
  int half[MATRICES];   // 1: entries are bfloat16, 0: float
  int rows[MATRICES], groups[MATRICES], columns[MATRICES], stride[MATRICES];
  int width[MATRICES], row_stride[MATRICES];
  const void* from[MATRICES];
  float* to[MATRICES];
};

template <class T> DEVICE float sum_of_column(const Totals& call, const int k, const T* from, const int first_row) {
  const int groups = call.groups[k], columns = call.columns[k];
  float sum = 0.0f;
  UNROLL_TIMES(8) for (int r = first_row; r < call.rows[k]; r += ROWS_IN_PARALLEL) {
    sum += number(from[(size_type)(r / groups) * call.stride[k] + r % groups * columns]);
  }
  return sum;
}

DEVICE void add_columns(const Totals& call, const Team team, Workspace& work, const int e) {
  int k = 0;
  while (e >= call.begin[k + 1]) ++k;
  const int first = (e - call.begin[k]) * COLUMNS, columns = math::min(COLUMNS, call.columns[k] - first);
  for (int i : team.each(ROWS_IN_PARALLEL * COLUMNS)) {
    const int column = first + i % COLUMNS;
    if (i % COLUMNS >= columns) continue;  // mutant(swap >=): sums of further columns are not read
    work.sum[i] = call.half[k] ? sum_of_column(call, k, (const bf16*)call.from[k] + column, i / COLUMNS)
                               : sum_of_column(call, k, (const float*)call.from[k] + column, i / COLUMNS);
  }
  team.sync();  // all partial sums are written before they are read
  for (int i : team.each(columns)) {
    float sum = 0.0f;
    UNROLL for (int first_row = 0; first_row < ROWS_IN_PARALLEL; ++first_row) sum += work.sum[first_row * COLUMNS + i];
    const int n = first + i;
    call.to[k][n / call.width[k] * call.row_stride[k] + n % call.width[k]] = sum;
  }
}

#include "drive/launch.cuh"
KERNEL(add_up, Totals, call.begin[MATRICES], add_columns(call, team, *work, e))
