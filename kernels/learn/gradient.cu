// gradient.cu -- gradients of PPO's and A2C's losses over minibatches.
//
// A chunk, the rows of one block in one minibatch (minibatches.cuh), is summed over in the order of its rows; sums of chunks are
// added within P parts of neighbouring blocks, then part after part (update.cu).
// Constants: those of network.cuh, minibatches.cuh and loss.cuh.
#include "learn/network.cuh"
#include "learn/loss.cuh"

struct Workspace {
  Tile tile;
  int row[TILE];               // places of the tile's rows in `order`'s terms
  float metric[TILE][METRICS];
};

// Part `piece` of the blocks: the sum of its chunks' gradients in minibatch (epoch, minibatch).
DEVICE void learn_piece(const Learn& call, const Team team, Workspace& work, const int piece) {
  if (*call.skip > 0.0f) return;
  const int first_block = (int)((i64)piece * call.blocks / call.pieces), last_block = (int)((i64)(piece + 1) * call.blocks / call.pieces);
  float* const sums = call.partials + (size_type)piece * GRADIENT_FLOATS;
  float* const chunk = call.chunks + (size_type)piece * GRADIENT_FLOATS;
  const Moments moments = call.moments[call.epoch * call.minibatches + call.minibatch];
  for (int i : team.each(GRADIENT_FLOATS)) sums[i] = 0.0f;
  for (int b = first_block; b < last_block; ++b) {
    const int begin = call.first_env(b) * call.rows_of_env(), rows = call.first_env(b + 1) * call.rows_of_env() - begin;
    const int* const order = call.epoch_order(call.epoch) + begin;
    const int from = call.part(call.minibatch, rows), until = call.part(call.minibatch + 1, rows);
    for (int at = from; at < until; at += TILE) {
      const int count = until - at < TILE ? until - at : TILE;
      for (int m : team.each(count)) {
        const Place place(call, order[at + m]);
        work.row[m] = order[at + m];
        const float* const obs = call.obs[place.group] + (size_type)place.row * OBS;
        float* const input = work.tile.input() + m * padded(OBS);
        for (int d = 0; d < OBS; ++d) input[d] = seen(obs[d], call.center, call.scale, d);
        for (int d = OBS; d < padded(OBS); ++d) input[d] = 0.0f;
      }
      team.sync();
      forward(team, work.tile, count, call.copies);
      for (int m : team.each(count)) {
        Transition row;
        row.load(call, Place(call, work.row[m]));
        differentiate_row(call, row, moments, work.tile.parameters(m), *work.tile.value(m), work.metric[m]);
      }
      team.sync();
      backward(team, work.tile, count, call.copies, chunk, at == from);
      float* const reported = chunk + GRADIENT_FLOATS - METRICS;
      for (int k : team.each(METRICS)) {
        float sum = at == from ? 0.0f : reported[k];
        for (int m = 0; m < count; ++m) sum += work.metric[m][k];
        reported[k] = sum;
      }
      team.sync();  // the tile is written again
    }
    if (from < until) {
      for (int strip : team.each(GRADIENT_FLOATS / STRIP)) {
        Lanes<STRIP> sum, more;
        sum.load(sums + strip * STRIP);
        more.load(chunk + strip * STRIP);
        sum.add(more);
        sum.store(sums + strip * STRIP);
      }
    }
    team.sync();
  }
}

#include "drive/launch.cuh"
KERNEL(gradient, Learn, call.pieces, learn_piece(call, team, *work, e))
