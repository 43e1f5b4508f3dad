// minibatches.cuh -- Assignment of rows to minibatches.
//
// Block b of B has environments [b N / B, (b + 1) N / B), counted over all processes. It permutes its rows, (T, its environments,
// agents) of all groups that share the policy, or its sequences of T rows, and gives the m-th part of them to minibatch m. This is
// a stratified shuffle. A chunk is the rows of one block in one minibatch. Gradients are added in a fixed order: the rows of a
// chunk, then the chunks within each of P parts of neighboring blocks, then the parts (update.cu). A split is a range of
// neighboring blocks whose gradient one team adds up. Splits are computed in parallel, as in a split-K matrix product. Their
// gradients are `partial_sums`. Bits therefore depend only on the total N, on T and on the number of minibatches.
// Letters: T steps, N environments of this process, R rows of all groups of this process, E epochs, M minibatches per epoch, B
// blocks of all processes.
// Constants: AGENT_GROUPS, SEQUENCES (1: minibatches have whole sequences of T rows of one agent, 0: rows).
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "learn/sums.cuh"

// Statistics of one minibatch, all as floats.
struct Moments {
  float inverse;   // one over `count`, which counts as at least 1
  float mean;      // of the advantages of its active rows
  float divisor;   // standard deviation of these advantages, plus 1e-8
  float count;     // number of active rows
};

struct Learn {
  int num_envs, steps, blocks, splits;   // N, T, blocks of this process, splits into which neighboring blocks are grouped
  int all_envs, all_blocks;           // N, B of all processes
  int first_block, envs_before;       // index of this process's first block among all, environments in the blocks before it
  int epochs, minibatches, epoch, minibatch;  // E, M, and the current ones
  int parts;                          // parts per split: P if there is one split, otherwise 1. Only a CPU thread reads it
  int agents[AGENT_GROUPS];           // per group
  const u64* seed;                    // (1)
  const i64* iteration;               // (1)
  const float* clip_coef;             // (1)
  const float* ent_coef;              // (1)
  const float* vf_coef;               // (1)
  const float* skip;                  // (1): if 1, the kernel returns immediately
  const float* center;                // (OBS): means for normalizing observations, or null
  const float* scale;                 // (OBS): reciprocal deviations
  const float* packed;                // packed weights (layers.cuh)
  int* order;                         // (E, R): rows in the order of learning, block after block
  int* counts;                        // (E, M, B): active rows of each chunk. Other processes fill in theirs
  float* sums;                        // (E, M, B): sums of their advantages
  float* squares;                     // (E, M, B): sums of squared differences between their advantages and the minibatch's mean
  Moments* moments;                   // (E, M)
  float* chunks;                      // (splits, GRADIENT_FLOATS): workspace for one chunk per split. If a team is one CPU thread:
                                      // (splits, SCRATCH_FLOATS) of exact/splits.cuh
  float* partial_sums;                // (splits, GRADIENT_FLOATS): gradient of each split
  const void* obs[AGENT_GROUPS];        // (T, N, C) rows of observed.cuh
  const void* action[AGENT_GROUPS];     // (T, N, C, HEADS) int, or float before squashing
  const u8* mask[AGENT_GROUPS];         // (T, N, C, CHOICES) or null
  const u8* active[AGENT_GROUPS];       // (T, N, C) or null: 1 in rows that actor and critic learn from, 2 in rows for the critic
  const float* log_prob[AGENT_GROUPS];  // (T, N, C), like the arrays below
  const float* value[AGENT_GROUPS];
  const float* advantage[AGENT_GROUPS];
  const float* returns[AGENT_GROUPS];
  float* log_prob_now[AGENT_GROUPS];    // null without STORES of loss.cuh. Log-probabilities and values by the current weights
  float* value_now[AGENT_GROUPS];

  // Index of the first environment of block b, both counted within this process.
  DEVICE int first_env(int b) const { return split_begin(first_block + b, all_envs, all_blocks) - envs_before; }
  DEVICE int agents_of_env() const {
    int sum = 0;
    for (int g = 0; g < AGENT_GROUPS; ++g) sum += agents[g];
    return sum;
  }
  DEVICE int rows_of_env() const { return agents_of_env() * steps; }
  // Number of rows per environment that minibatches divide, or of whole sequences. A sequence is identified by its row of step 0.
  DEVICE int shuffled_of_env() const { return SEQUENCES ? agents_of_env() : rows_of_env(); }
  // Begin of minibatch m's part of n rows.
  // mutant(swapped arguments 1): the product fits into 32 bits
  DEVICE int part(int m, int n) const { return split_begin(m, n, minibatches); }
  DEVICE int* epoch_order(int which) const { return order + (size_type)which * shuffled_of_env() * num_envs; }
};

// Call visit(begin, end) with the blocks of each part of a split.
template <class Visit> DEVICE void each_part(const Learn& call, const int split, Visit visit) {
  const int parts = TEAM == 1 ? call.parts : 1, all_parts = call.splits * parts;
  for (int k = split * parts; k < (split + 1) * parts; ++k) {
    visit(split_begin(k, call.blocks, all_parts), split_begin(k + 1, call.blocks, all_parts));
  }
}

// A row of the concatenated rows of all groups, as its group and its row in the arrays of that group.
struct RowIndex {
  int group, row;
  DEVICE RowIndex(const Learn& call, int at) : group(0), row(at) {
    for (; group < AGENT_GROUPS - 1; ++group) {  // mutant(swap -, swap <): the last group ends the search
      const int rows = call.steps * call.num_envs * call.agents[group];
      if (row < rows) break;
      row -= rows;
    }
  }
  // Return the same agent's row `steps` steps later.
  DEVICE RowIndex later(const Learn& call, int steps) const {
    RowIndex place = *this;
    place.row += steps * call.num_envs * call.agents[group];
    return place;
  }
  DEVICE u8 weight(const Learn& call) const { return call.active[group] == nullptr ? (u8)1 : call.active[group][row]; }
};

// Rows, or sequences, of one block, group and step. For j < end, the j-th one is row j + offset of `RowIndex`.
struct Run { int offset, end; };

// Return the run that contains the j-th row of block b.
DEVICE Run run_of_block(const Learn& call, const int b, const int j) {
  const int first = call.first_env(b), envs = call.first_env(b + 1) - first, steps = SEQUENCES ? 1 : call.steps;
  int before = 0, passed = 0, agents = call.agents[0];  // rows of earlier groups: in all blocks, in this block
  for (int g = 0; g < AGENT_GROUPS - 1; ++g) {  // mutant(swap -, swap <): the last group ends the search
    const int rows = steps * envs * agents;
    if (j < passed + rows) break;
    passed += rows;
    before += call.steps * call.num_envs * agents;
    agents = call.agents[g + 1];
  }
  const int t = (j - passed) / (envs * agents), begin = passed + t * envs * agents;
  // mutant(swap + 3): more work, same result
  return {before + (t * call.num_envs + first) * agents - begin, begin + envs * agents};
}
