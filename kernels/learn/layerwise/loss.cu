// loss.cu -- Loss of rows of sequences. Replaces a network's outputs by the gradients, and adds up the reported metrics.
// Constants: those of loss.cuh and sequences.cuh, PARAMETERS, METRICS, PARAMETERS_STRIDE, VALUE_STRIDE, VALUE_AT, REPORTED_STRIDE,
// TILE.
// call: kernel arguments (drive/launch.cuh).
#include "drive/halves.cuh"
#include "learn/layers.cuh"
#include "learn/loss.cuh"
#include "learn/layerwise/sequences.cuh"

struct Workspace { float metric[TILE][METRICS]; };

struct Loss {
  Learn learn;
  float* parameters;     // rows (PARAMETERS_STRIDE): outputs, then gradients w.r.t. them
  float* value;          // rows (VALUE_STRIDE): value at VALUE_AT of each row, then the gradient w.r.t. it. Q_VALUES: parameters
  bf16* parameter_grad;  // rows (PARAMETERS_STRIDE): gradients in bfloat16 for a library's products, or null
  bf16* value_grad;      // rows (VALUE_STRIDE): the same
  float* reported;       // (splits, REPORTED_STRIDE): sums of reported metrics
};

// Round the gradients of a row for a library.
DEVICE void round_row(const Loss& call, const size_type at) {
  if (call.parameter_grad == nullptr) return;
  for (int k = 0; k < PARAMETERS; ++k) {
    call.parameter_grad[at * PARAMETERS_STRIDE + k] = call.parameters[at * PARAMETERS_STRIDE + k];
  }
  call.value_grad[at * VALUE_STRIDE + VALUE_AT] = call.value[at * VALUE_STRIDE + VALUE_AT];
}

DEVICE void loss_of_split(const Loss& call, const Team team, Workspace& work, const int split) {
  const Learn& learn = call.learn;
  if (*learn.skip > 0.0f) return;
  const Coefficients coefficients(learn);
  const Moments moments = learn.moments[learn.epoch * learn.minibatches + learn.minibatch];
  float* const sums = call.reported + (size_type)split * REPORTED_STRIDE;
  for (int k : team.each(METRICS)) sums[k] = 0.0f;
  each_part(learn, split, [&](const int begin, const int end) INLINED {
    [[maybe_unused]] float of_part[METRICS]{};
    float* const found = ALONE ? of_part : sums;  // with several threads a split has one part
    for (int b = begin; b < end; ++b) {
      const Sequences of(learn, b);
      float own[own_count(METRICS)]{};
      for (int from = 0; from < of.rows(); from += TILE) {
        const int left = of.rows() - from, rows = left < TILE ? left : TILE;
        team.sync();  // metrics are read before they are overwritten
        // Differentiate the losses of a tile.
        for (int m : team.each(rows)) {
          const size_type at = of.row(from + m);
          Transition row;
          row.load(learn, of.place(from + m));
          differentiate_row(coefficients, row, moments, call.parameters + at * PARAMETERS_STRIDE,
                            call.value[at * VALUE_STRIDE + VALUE_AT], work.metric[m]);
          round_row(call, at);
        }
        team.sync();  // metrics are written before they are read
        // Add the tile's metrics in the order of rows.
        int j = 0;
        for (int k : team.each(METRICS)) {
          UNROLL_TIMES(4) for (int m = 0; m < rows; ++m) own[j] += work.metric[m][k];
          ++j;
        }
      }
      // Add the block's metrics.
      int j = 0;
      for (int k : team.each(METRICS)) found[k] += own[j++];
      // Clear the gradients of places without a sequence.
      for (int i : team.each(steps_of(learn) * (of.most - of.count))) {
        const size_type at = of.row(i % steps_of(learn), of.count + i / steps_of(learn));
        for (int k = 0; k < PARAMETERS; ++k) call.parameters[at * PARAMETERS_STRIDE + k] = 0.0f;
        call.value[at * VALUE_STRIDE + VALUE_AT] = 0.0f;
        round_row(call, at);
      }
    }
    if constexpr (ALONE) for (int k = 0; k < METRICS; ++k) sums[k] += of_part[k];
  });
}

#include "drive/launch.cuh"
KERNEL(loss, Loss, call.learn.splits, loss_of_split(call, team, *work, e))
