// sequences.cuh -- Layout of a minibatch's rows in memory during learning: T steps of each agent, or single rows.
//
// Networks other than plain perceptrons are computed part by part: each kernel reads rows that the previous one has written. A
// block has places for the maximum number of sequences that it has in any minibatch. In places without a sequence the gradients of
// the loss are 0. Rows are time first: row t * Q + q, with Q places of all blocks.
// Letters: T steps, N environments, C agents of a group. Constants: those of minibatches.cuh.
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "learn/minibatches.cuh"
#include "learn/exact/lanes.cuh"

// Steps of a sequence: one, if minibatches have rows (SEQUENCES 0).
DEVICE int steps_of(const Learn& call) { return SEQUENCES ? call.steps : 1; }

// Maximum number of sequences that a block has in a minibatch.
DEVICE int most_sequences(const Learn& call) {
  const int envs = (call.all_envs + call.all_blocks - 1) / call.all_blocks;
  return (envs * call.shuffled_of_env() + call.minibatches - 1) / call.minibatches;
}

// Sequences of one block in this minibatch.
struct Sequences {
  const Learn& call;
  int count, most;    // number of sequences, and its maximum
  int first;          // place of its first sequence among those of all blocks
  const int* order;   // (count): the row of step 0 of each

  DEVICE Sequences(const Learn& learn, const int block) : call(learn), most(most_sequences(learn)), first(block * most) {
    const int each = call.shuffled_of_env(), begin = call.first_env(block) * each, all = call.first_env(block + 1) * each - begin;
    const int from = call.part(call.minibatch, all);
    count = call.part(call.minibatch + 1, all) - from;
    order = call.epoch_order(call.epoch) + begin + from;
  }
  DEVICE int rows() const { return steps_of(call) * count; }
  DEVICE int step_of(const int r) const { return SEQUENCES ? r / count : 0; }
  // Row in memory of step t of sequence s, or of the block's r-th row.
  DEVICE size_type row(const int t, const int s) const { return (size_type)t * call.blocks * most + first + s; }
  DEVICE size_type row(const int r) const {
    const int t = step_of(r);
    return row(t, r - t * count);
  }
  // Row of step t of sequence s in the arrays of its group.
  DEVICE RowIndex place(const int t, const int s) const { return RowIndex(call, order[s]).later(call, t); }
  DEVICE RowIndex place(const int row) const {
    const int t = step_of(row);
    return place(t, row - t * count);
  }
};

// Call visit(memory, tile) with the offsets of every four numbers of rows [from, from + rows) of a block, of PADDED numbers each.
template <int PADDED, class Visit>
DEVICE void each_four(const Team team, const Sequences& of, const int from, const int rows, Visit visit) {
  if constexpr (TEAM == 1) {  // finds each row once. mutant(swap ==): same work in another order
    for (int m = 0; m < rows; ++m) {
      const size_type there = of.row(from + m) * PADDED;
      for (int column = 0; column < PADDED; column += 4) visit(there + column, m * PADDED + column);
    }
    return;
  }
  UNROLL_TIMES(4) for (int i : team.each(rows * (PADDED / 4))) {
    const int m = i / (PADDED / 4), column = i % (PADDED / 4) * 4;
    visit(of.row(from + m) * PADDED + column, m * PADDED + column);
  }
}
// Copy rows from memory to a tile.
template <int PADDED>
DEVICE void load_rows(const Team team, float* tile, const float* memory, const Sequences& of, const int from, const int rows) {
  each_four<PADDED>(team, of, from, rows, [&](size_type there, int here) INLINED {
    Four four;
    four.load(memory + there);
    four.store(tile + here);
  });
}
