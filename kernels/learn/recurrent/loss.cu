// loss.cu -- the loss of rows of sequences: derivatives by a network's outputs in their place, and sums of what is reported.
// Constants: those of loss.cuh and sequences.cuh; PARAMETERS, METRICS; TOTAL_FLOATS; PARAMETERS_STRIDE, VALUE_STRIDE, VALUE_AT.
#include "learn/layers.cuh"
#include "learn/loss.cuh"
#include "learn/recurrent/sequences.cuh"

struct Workspace { float metric[TILE][METRICS]; };

struct Loss {
  Learn learn;
  float* parameters;  // slots of rows (PARAMETERS_STRIDE)
  float* value;       // slots of rows (VALUE_STRIDE), each value VALUE_AT in its row
};

DEVICE void lose_piece(const Loss& call, const Team team, Workspace& work, const int piece) {
  const Learn& learn = call.learn;
  if (*learn.skip > 0.0f) return;
  const Coefficients coefficients(learn);
  const Moments moments = learn.moments[learn.epoch * learn.minibatches + learn.minibatch];
  float* const sums = learn.partials + (size_type)piece * TOTAL_FLOATS + TOTAL_FLOATS - METRICS;
  for (int k : team.each(METRICS)) sums[k] = 0.0f;
  for (int b = share(piece, learn.blocks, learn.pieces); b < share(piece + 1, learn.blocks, learn.pieces); ++b) {
    const Sequences of(learn, b);
    float own[own_count(METRICS)]{};
    for (int from = 0; from < of.rows(); from += TILE) {
      const int left = of.rows() - from, rows = left < TILE ? left : TILE;
      team.sync();  // metrics are written again
      for (int m : team.each(rows)) {
        const int t = (from + m) / of.count, s = from + m - t * of.count;
        const size_type at = of.row(t, s);
        Transition row;
        row.load(learn, of.place(t, s));
        differentiate_row(coefficients, row, moments, call.parameters + at * PARAMETERS_STRIDE,
                          call.value[at * VALUE_STRIDE + VALUE_AT], work.metric[m]);
      }
      team.sync();
      int j = 0;
      for (int k : team.each(METRICS)) {
        UNROLL_TIMES(4) for (int m = 0; m < rows; ++m) own[j] += work.metric[m][k];
        ++j;
      }
    }
    int j = 0;
    for (int k : team.each(METRICS)) sums[k] += own[j++];
  }
}

#include "drive/launch.cuh"
KERNEL(loss, Loss, call.learn.pieces, lose_piece(call, team, *work, e))
