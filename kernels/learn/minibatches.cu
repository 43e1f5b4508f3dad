// minibatches.cu -- draws the minibatches of all epochs, and finds the moments of their advantages.
//
// Sums over the rows of a chunk, and over the chunks of a minibatch, are those of sums.cuh.
// Constants: AGENT_GROUPS; SHUFFLED (0: rows stay in their order).
#include "learn/minibatches.cuh"
#include "drive/math.cuh"
#include "train/cipher.cuh"

struct Workspace {
  float sum[CHAINS];
  int count[CHAINS];
};

// Rows of block b: their number, and where they begin in the `order` of an epoch.
struct Rows {
  int begin, count;
  DEVICE Rows(const Learn& call, int b)
      : begin(call.first_env(b) * call.rows_of_env()), count(call.first_env(b + 1) * call.rows_of_env() - begin) {}
};

// Element e: block e % B in epoch e / B. Fills `order`, `counts` and `sums`.
DEVICE void arrange_block(const Learn& call, const Team team, Workspace& work, const int e) {
  const int epoch = e / call.blocks, b = e - epoch * call.blocks;
  const Rows rows(call, b);
  int* const order = call.epoch_order(epoch) + rows.begin;
  const Random random{*call.seed, (u32)*call.iteration, (u32)(*call.iteration >> 32), (u32)epoch, SHUFFLE};
  const Cipher cipher(rows.count, random, (u32)b, 2);
  for (int m = 0; m < call.minibatches; ++m) {
    const int from = call.part(m, rows.count), until = call.part(m + 1, rows.count), used = chains_of(until - from);
    for (int c : team.each(used)) {
      int count = 0;
      float sum = 0.0f;
      for (int j = from + c; j < until; j += CHAINS) {
        const int row = row_of_block(call, b, SHUFFLED ? cipher.of(j) : j);
        order[j] = row;
        const Place place(call, row);
        if (!place.in_game(call)) continue;
        count += 1;
        sum += call.advantage[place.group][place.row];
      }
      work.count[c] = count;
      work.sum[c] = sum;
    }
    add_halves(team, work.count, used);
    add_halves(team, work.sum, used);
    if (team.leader()) {
      call.counts[call.chunk(epoch, m, b)] = work.count[0];
      call.sums[call.chunk(epoch, m, b)] = work.sum[0];
    }
    team.sync();  // the sums are written again
  }
}

// Element e: minibatch e of all epochs. Fills what `counts` and `sums` say of it.
DEVICE void find_mean(const Learn& call, const Team team, Workspace& work, const int e) {
  const size_type first = (size_type)e * call.blocks;
  const int used = chains_of(call.blocks);
  for (int c : team.each(used)) {
    int count = 0;
    float sum = 0.0f;
    for (int b = c; b < call.blocks; b += CHAINS) {
      count += call.counts[first + b];
      sum += call.sums[first + b];
    }
    work.count[c] = count;
    work.sum[c] = sum;
  }
  add_halves(team, work.count, used);
  add_halves(team, work.sum, used);
  if (!team.leader()) return;
  const int count = work.count[0];
  const float least = (float)(count < 1 ? 1 : count);
  call.moments[e] = {1.0f / least, work.sum[0] / least, 1.0f, (float)count};
}

// Element e: block e % B in epoch e / B. Fills `squares`.
DEVICE void spread_block(const Learn& call, const Team team, Workspace& work, const int e) {
  const int epoch = e / call.blocks, b = e - epoch * call.blocks;
  const Rows rows(call, b);
  const int* const order = call.epoch_order(epoch) + rows.begin;
  for (int m = 0; m < call.minibatches; ++m) {
    const float mean = call.moments[epoch * call.minibatches + m].mean;
    const int from = call.part(m, rows.count), until = call.part(m + 1, rows.count), used = chains_of(until - from);
    for (int c : team.each(used)) {
      float sum = 0.0f;
      for (int j = from + c; j < until; j += CHAINS) {
        const Place place(call, order[j]);
        if (!place.in_game(call)) continue;
        const float apart = call.advantage[place.group][place.row] - mean;
        sum = math::fma(apart, apart, sum);
      }
      work.sum[c] = sum;
    }
    add_halves(team, work.sum, used);
    if (team.leader()) call.squares[call.chunk(epoch, m, b)] = work.sum[0];
    team.sync();  // the sums are written again
  }
}

// Element e: minibatch e of all epochs.
DEVICE void find_deviation(const Learn& call, const Team team, Workspace& work, const int e) {
  const int used = chains_of(call.blocks);
  for (int c : team.each(used)) {
    float sum = 0.0f;
    for (int b = c; b < call.blocks; b += CHAINS) sum += call.squares[(size_type)e * call.blocks + b];
    work.sum[c] = sum;
  }
  add_halves(team, work.sum, used);
  if (team.leader()) call.moments[e].divisor = math::sqrt(work.sum[0] * call.moments[e].inverse) + 1e-8f;
}

#include "drive/launch.cuh"
KERNEL(arrange, Learn, call.epochs * call.blocks, arrange_block(call, team, *work, e))
KERNEL(mean, Learn, call.epochs * call.minibatches, find_mean(call, team, *work, e))
KERNEL(spread, Learn, call.epochs * call.blocks, spread_block(call, team, *work, e))
KERNEL(deviation, Learn, call.epochs * call.minibatches, find_deviation(call, team, *work, e))
