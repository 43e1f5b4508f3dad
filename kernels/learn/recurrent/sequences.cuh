// sequences.cuh -- where the rows of whole sequences are while they are learnt from: T steps of each agent of a minibatch.
//
// Networks with hidden state are computed part by part: each kernel reads rows that the one before it has written. A block has places
// for as many sequences as it may have in any minibatch. Its rows lie together, step after step; with TIME_MAJOR 1 those of all
// blocks do, and rows without a sequence have derivatives of 0, as a library multiplies all of them.
// Letters: T steps, N environments, C agents of a group. Constants: those of minibatches.cuh, with SEQUENCES 1; TIME_MAJOR.
#pragma once
#include "learn/minibatches.cuh"
#include "learn/exact/lanes.cuh"

static_assert(SEQUENCES, "rows of one agent stay together");

// The most sequences that a block has in a minibatch.
DEVICE int most_sequences(const Learn& call) {
  const int envs = (call.all_envs + call.all_blocks - 1) / call.all_blocks;
  return (envs * call.agents_of_env() + call.minibatches - 1) / call.minibatches;
}

// Those of one block in this minibatch.
struct Sequences {
  const Learn& call;
  int count, most;    // how many, and how many there may be
  int first;          // its first sequence's place among those of all blocks
  const int* order;   // (count): the row of step 0 of each

  DEVICE Sequences(const Learn& learn, const int block) : call(learn), most(most_sequences(learn)), first(block * most) {
    const int each = call.drawn_of_env(), begin = call.first_env(block) * each, all = call.first_env(block + 1) * each - begin;
    const int from = call.part(call.minibatch, all);
    count = call.part(call.minibatch + 1, all) - from;
    order = call.epoch_order(call.epoch) + begin + from;
  }
  DEVICE int rows() const { return call.steps * count; }
  // Memory's row of step t of sequence s. Where the rows of a block lie together they are slot() + [0, rows()).
  DEVICE size_type row(const int t, const int s) const {
    return TIME_MAJOR ? (size_type)t * call.blocks * most + first + s : slot() + (size_type)t * count + s;
  }
  DEVICE size_type slot() const { return (size_type)first * call.steps; }
  // Where step t of sequence s is in the arrays of its group.
  DEVICE Place place(const int t, const int s) const { return Place(call, order[s]).later(call, t); }
  DEVICE Place place(const int row) const {
    const int t = row / count;
    return place(t, row - t * count);
  }
};

// Copies COUNT * rows numbers, a multiple of 4 that is aligned to 16 bytes.
DEVICE void copy_rows(const Team team, float* to, const float* from, const int count) {
  UNROLL_TIMES(4) for (int i : team.each(count / 4)) {
    Four four;
    four.load(from + 4 * i);
    four.store(to + 4 * i);
  }
}
