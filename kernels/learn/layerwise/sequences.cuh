// sequences.cuh -- Rows of one minibatch in global memory, for networks that are computed layer by layer.
//
// Each kernel of kernels/learn/layerwise reads rows that the previous kernel has written. Such an array of rows has the shape
// (S, Q, width). All arrays of a minibatch share this layout:
//   S      steps of a sequence: T with SEQUENCES, otherwise 1. A sequence is then a single row
//   Q      slots for sequences, `blocks * most`. Block b has slots [b * most, (b + 1) * most)
//   most   maximum number of sequences that a block has in any minibatch
//   width  floats per row, padded to a multiple of PAD
// The row of step t and slot q is t * Q + q. A block fills its first `count` slots. In slots without a sequence the gradients of
// the loss are 0.
//
// Two indices identify a row of a block. `row` converts them to the row in global memory, and `place` to the row in the rollout.
//   (t, s)  step t of sequence s, s < count
//   r       the r-th row of the block, t * count + s. Kernels process tiles of consecutive r
//
// A block is a range of environments (minibatches.cuh), not a thread block.
// Letters: T steps, N environments, C agents of a group. Constants: those of minibatches.cuh.
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "learn/minibatches.cuh"
#include "learn/exact/lanes.cuh"

// S, the number of steps of a sequence.
DEVICE int steps_of(const Learn& call) { return SEQUENCES ? call.steps : 1; }

// Maximum number of sequences that a block has in any minibatch. The host allocates slots by the same formula.
DEVICE int most_sequences(const Learn& call) {
  const int envs = (call.all_envs + call.all_blocks - 1) / call.all_blocks;
  return (envs * call.shuffled_of_env() + call.minibatches - 1) / call.minibatches;
}

// Sequences of one block in the current minibatch.
struct Sequences {
  const Learn& call;
  int count, most;    // number of sequences, and its maximum
  int first;          // slot of the block's first sequence
  const int* order;   // (count): index of each sequence's row of step 0, as in RowIndex

  DEVICE Sequences(const Learn& learn, const int block) : call(learn), most(most_sequences(learn)), first(block * most) {
    const int each = call.shuffled_of_env(), begin = call.first_env(block) * each, all = call.first_env(block + 1) * each - begin;
    const int from = call.part(call.minibatch, all);
    count = call.part(call.minibatch + 1, all) - from;
    order = call.epoch_order(call.epoch) + begin + from;
  }
  DEVICE int rows() const { return steps_of(call) * count; }
  DEVICE int step_of(const int r) const { return SEQUENCES ? r / count : 0; }
  // Row in global memory of step t of sequence s, or of the block's r-th row.
  DEVICE size_type row(const int t, const int s) const { return (size_type)t * call.blocks * most + first + s; }
  DEVICE size_type row(const int r) const {
    const int t = step_of(r);
    return row(t, r - t * count);
  }
  // Row of the rollout, in the arrays of its group, of step t of sequence s, or of the block's r-th row.
  DEVICE RowIndex place(const int t, const int s) const { return RowIndex(call, order[s]).later(call, t); }
  DEVICE RowIndex place(const int row) const {
    const int t = step_of(row);
    return place(t, row - t * count);
  }
};

// Call visit(memory, tile) for every four floats of rows [from, from + rows) of a block. The arguments are the offsets of the first
// of the four in the rows (S, Q, PADDED) in global memory, and in a tile (rows, PADDED). The team's threads share the calls.
template <int PADDED, class Visit>
DEVICE void each_four(const Team team, const Sequences& of, const int from, const int rows, Visit visit) {
  if constexpr (TEAM == 1) {  // computes the offset of each row once. mutant(swap ==): same work in another order
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
// Copy rows [from, from + rows) of a block from global memory to a tile. The caller synchronizes the team.
template <int PADDED>
DEVICE void load_rows(const Team team, float* tile, const float* memory, const Sequences& of, const int from, const int rows) {
  each_four<PADDED>(team, of, from, rows, [&](size_type there, int here) INLINED {
    Four four;
    four.load(memory + there);
    four.store(tile + here);
  });
}
