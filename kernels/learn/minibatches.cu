// minibatches.cu -- Draw the minibatches of all epochs, and compute mean and deviation of their advantages (sums.cuh).
// Constants: AGENT_GROUPS, SHUFFLED (0: rows keep their order).
// call: kernel arguments (drive/launch.cuh).
#include "learn/minibatches.cuh"
#include "drive/math.cuh"
#include "train/cipher.cuh"

struct Workspace {
  float sum[CHAINS];
  int count[CHAINS];
};

// Chunk e: rows [from, until) of block `block` of this process. The block's rows begin at `begin` in the epoch's `order`. `place`
// is the chunk's index among the chunks of all blocks.
struct Chunk {
  int epoch, minibatch, block, place, begin, count, from, until;
  DEVICE Chunk(const Learn& call, const int e) {
    const int minibatch_of_all = e / call.blocks;
    block = e - minibatch_of_all * call.blocks;
    place = minibatch_of_all * call.all_blocks + call.first_block + block;
    epoch = minibatch_of_all / call.minibatches;
    minibatch = minibatch_of_all - epoch * call.minibatches;
    begin = call.first_env(block) * call.shuffled_of_env();
    count = call.first_env(block + 1) * call.shuffled_of_env() - begin;
    from = call.part(minibatch, count);  // mutant(swapped arguments): the product fits into 32 bits
    until = call.part(minibatch + 1, count);
  }
  DEVICE int chains() const { return chains_of(until - from); }  // mutant(swap -): adds empty chains
};

// Inputs from one row that a chain accumulates.
struct Sample {
  u8 active;
  float advantage;
  DEVICE void load(const Learn& call, const RowIndex place) {
    active = place.weight(call) == 1;
    advantage = call.advantage[place.group][place.row];
  }
};
// Number of rows that a GPU thread loads at once if one minibatch has all rows and threads are few.
// mutant(swap >, swap ||, constant 2, constant 3): same order of sums. mutant(constant 1): 8 or 16 numbers, one on a GPU
constexpr int AT_ONCE = SIDE_FLOATS > 1 || SHUFFLED || SEQUENCES ? 1 : 16;

// Draw the rows of chunk e into `order`, and write the chunk's entries of `counts` and `sums`.
DEVICE void arrange_chunk(const Learn& call, const Team team, Workspace& work, const int e) {
  const Chunk chunk(call, e);
  int* const order = call.epoch_order(chunk.epoch) + chunk.begin;
  const int used = chunk.chains(), steps = SEQUENCES ? call.steps : 1;
  if (team.rank < used) {  // threads without rows skip the key schedule. mutant(swap <): more work, same result
    const Random random{*call.seed, (u32)*call.iteration, (u32)(*call.iteration >> 32), (u32)chunk.epoch, SHUFFLE};
    const Cipher cipher(chunk.count, random, (u32)(call.first_block + chunk.block), 2);
    constexpr bool AHEAD = SHUFFLED && TEAM == 1 && SIDE_FLOATS > 1;  // permute all rows in one pass, vectorized on a CPU
    if constexpr (AHEAD) {
      for (int j = chunk.from; j < chunk.until; ++j) order[j] = (int)cipher.permuted((u32)j);
    }
    for (int c : team.each(used)) {
      int count = 0;
      float sum = 0.0f;
      Run run{0, 0};  // mutant(constant 1): ends at 0, replaced before it is read
      // mutant(swap <): one more iteration, without rows
      for (int first = chunk.from + c; first < chunk.until; first += AT_ONCE * CHAINS) {
        // Load several rows before adding any, so that their latencies overlap.
        int rows[AT_ONCE];
        Sample found[AT_ONCE];
        UNROLL for (int k = 0; k < AT_ONCE; ++k) {
          const int j = first + k * CHAINS;
          if (j >= chunk.until) continue;
          const int at = AHEAD ? cipher.within((u32)order[j]) : SHUFFLED ? cipher.of(j) : j;
          // mutant(dropped condition): more work, same result
          if (SHUFFLED || at >= run.end) run = run_of_block(call, chunk.block, at);
          rows[k] = at + run.offset;
          found[k].load(call, RowIndex(call, rows[k]));
        }
        // Accumulate them in order.
        UNROLL for (int k = 0; k < AT_ONCE; ++k) {
          const int j = first + k * CHAINS;
          if (j >= chunk.until) continue;
          order[j] = rows[k];
          for (int t = 0; t < steps; ++t) {
            if (t > 0) found[k].load(call, RowIndex(call, rows[k]).later(call, t));
            if (!found[k].active) continue;
            count += 1;
            sum += found[k].advantage;
          }
        }
      }
      work.count[c] = count;
      work.sum[c] = sum;
    }
  }
  // Add the chains, and store the chunk's results.
  const int count = add_halves(team, work.count, used);
  const float sum = add_halves(team, work.sum, used);
  if (!team.leader()) return;
  call.counts[chunk.place] = count;
  call.sums[chunk.place] = sum;
}

// Write the moments of minibatch e of all epochs from `counts` and `sums`, except for the deviation.
DEVICE void compute_mean(const Learn& call, const Team team, Workspace& work, const int e) {
  const size_type first = (size_type)e * call.all_blocks;
  const int used = chains_of(call.all_blocks);
  UNROLL_TIMES(8) for (int c : team.each(used)) {
    int count = 0;
    float sum = 0.0f;
    for (int b = c; b < call.all_blocks; b += CHAINS) {
      count += call.counts[first + b];
      sum += call.sums[first + b];
    }
    work.count[c] = count;
    work.sum[c] = sum;
  }
  const int count = add_halves(team, work.count, used);
  const float sum = add_halves(team, work.sum, used);
  if (!team.leader()) return;
  const float clamped = (float)(count < 1 ? 1 : count);  // mutant(swap <, constant 1): equal where they meet
  call.moments[e] = {1.0f / clamped, sum / clamped, 1.0f, (float)count};  // mutant(constant 2): the deviation is written next
}

// Write `squares` of chunk e.
DEVICE void sum_squared_deviations(const Learn& call, const Team team, Workspace& work, const int e) {
  const Chunk chunk(call, e);
  const int* const order = call.epoch_order(chunk.epoch) + chunk.begin;
  const float mean = call.moments[e / call.blocks].mean;
  const int used = chunk.chains(), steps = SEQUENCES ? call.steps : 1;
  for (int c : team.each(used)) {
    float sum = 0.0f;
    for (int j = chunk.from + c; j < chunk.until; j += CHAINS) {
      for (int t = 0; t < steps; ++t) {
        const RowIndex place = RowIndex(call, order[j]).later(call, t);
        if (place.weight(call) != 1) continue;
        const float delta = call.advantage[place.group][place.row] - mean;
        sum = math::fma(delta, delta, sum);
      }
    }
    work.sum[c] = sum;
  }
  const float squares = add_halves(team, work.sum, used);
  if (team.leader()) call.squares[chunk.place] = squares;  // mutant(dropped condition): all threads write the same sum
}

// Write the divisor of minibatch e of all epochs.
DEVICE void compute_deviation(const Learn& call, const Team team, Workspace& work, const int e) {
  const int used = chains_of(call.all_blocks);
  for (int c : team.each(used)) {
    float sum = 0.0f;
    for (int b = c; b < call.all_blocks; b += CHAINS) sum += call.squares[(size_type)e * call.all_blocks + b];
    work.sum[c] = sum;
  }
  const float squares = add_halves(team, work.sum, used);
  // mutant(dropped condition): all threads write the same sum
  if (team.leader()) call.moments[e].divisor = math::sqrt(squares * call.moments[e].inverse) + 1e-8f;
}

#include "drive/launch.cuh"
KERNEL(arrange, Learn, call.epochs * call.minibatches * call.blocks, arrange_chunk(call, team, *work, e))
KERNEL(mean, Learn, call.epochs * call.minibatches, compute_mean(call, team, *work, e))
KERNEL(squared_deviations, Learn, call.epochs * call.minibatches * call.blocks, sum_squared_deviations(call, team, *work, e))
KERNEL(deviation, Learn, call.epochs * call.minibatches, compute_deviation(call, team, *work, e))
