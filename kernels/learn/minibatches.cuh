// minibatches.cuh -- which rows each minibatch has.
//
// Block b of B has environments [b N / B, (b + 1) N / B), in any process. It permutes its rows, (T, its environments, agents) of
// all groups that share the policy, or its sequences of T rows, and gives the m-th part of them to minibatch m: a stratified
// shuffle. A chunk is the rows of one block in one minibatch. Its rows are summed up in order; then chunks within P parts of neighbouring blocks; then the parts
// (update.cu). So bits depend only on the total N, T and the number of minibatches.
// Letters: T steps, N environments here, R rows of all groups here; E epochs, M minibatches of each; B blocks of all processes.
// Constants: AGENT_GROUPS; SEQUENCES (1: minibatches have whole sequences of T rows of one agent, 0: rows).
#pragma once
#include "learn/sums.cuh"

// Of one minibatch; all floats.
struct Moments {
  float inverse;   // one over its rows in the game, at least 1
  float mean;      // of their advantages
  float divisor;   // their deviation, and a little more
  float count;     // of its rows in the game
};

struct Learn {
  int num_envs, steps, blocks, pieces;   // N, T; blocks: here; pieces: into how many parts of neighbouring ones they are divided
  int all_envs, all_blocks;           // of all processes: N, B
  int first_block, envs_before;       // among all blocks, the first one here; the environments of the blocks before it
  int epochs, minibatches, epoch, minibatch;  // E, M; which
  int parts;                          // of each piece: P, if there is one piece, else 1; blocks of a GPU have no need to know
  int agents[AGENT_GROUPS];           // of each group
  const u64* seed;                    // (1)
  const i64* iteration;               // (1)
  const float* clip_coef;             // (1)
  const float* ent_coef;              // (1)
  const float* vf_coef;               // (1)
  const float* skip;                  // (1): 1: there is nothing to learn
  const float* center;                // (OBS) or null: observations are normalised
  const float* scale;                 // (OBS)
  const float* copies;                // the network's weights, as layers.cuh has them
  int* order;                         // (E, R): rows of the blocks, one after the other, as they are to be learnt from
  int* counts;                        // (E, M, B): rows in the game, of each chunk; other processes fill in theirs
  float* sums;                        // (E, M, B): of their advantages
  float* squares;                     // (E, M, B): of what their advantages differ from the minibatch's mean
  Moments* moments;                   // (E, M)
  float* chunks;                      // (pieces, GRADIENT_FLOATS): memory for one chunk
  float* partials;                    // (pieces, GRADIENT_FLOATS)
  const void* obs[AGENT_GROUPS];        // (T, N, C) rows of observed.cuh
  const void* action[AGENT_GROUPS];     // (T, N, C, HEADS) int, or float before squashing
  const u8* mask[AGENT_GROUPS];         // (T, N, C, CHOICES) or null
  const u8* active[AGENT_GROUPS];       // (T, N, C) or null: 1 where the row is learnt from, 2 by the critic only
  const float* log_prob[AGENT_GROUPS];  // (T, N, C), as all below
  const float* value[AGENT_GROUPS];
  const float* advantage[AGENT_GROUPS];
  const float* returns[AGENT_GROUPS];
  float* log_prob_now[AGENT_GROUPS];    // null but with STORES of loss.cuh: what the weights give now
  float* value_now[AGENT_GROUPS];

  // Where block b of those here begins among the environments here.
  DEVICE int first_env(int b) const { return share(first_block + b, all_envs, all_blocks) - envs_before; }
  DEVICE int agents_of_env() const {
    int sum = 0;
    for (int g = 0; g < AGENT_GROUPS; ++g) sum += agents[g];
    return sum;
  }
  DEVICE int rows_of_env() const { return agents_of_env() * steps; }
  // What minibatches share out: rows, or whole sequences, each known by its row of step 0.
  DEVICE int drawn_of_env() const { return SEQUENCES ? agents_of_env() : rows_of_env(); }
  // Where the part of minibatch m begins among n rows.
  // equal(swapped arguments 1): the product fits into 32 bits
  DEVICE int part(int m, int n) const { return share(m, n, minibatches); }
  DEVICE int* epoch_order(int which) const { return order + (size_type)which * drawn_of_env() * num_envs; }
};

// visit(begin, end) for the blocks of each part of a piece.
template <class Visit> DEVICE void each_part(const Learn& call, const int piece, Visit visit) {
  const int parts = TEAM == 1 ? call.parts : 1, shares = call.pieces * parts;
  for (int k = piece * parts; k < (piece + 1) * parts; ++k) visit(share(k, call.blocks, shares), share(k + 1, call.blocks, shares));
}

// A row of all groups, one after the other: which group's it is, and its place in the arrays of that group.
struct Place {
  int group, row;
  DEVICE Place(const Learn& call, int at) : group(0), row(at) {
    for (; group < AGENT_GROUPS - 1; ++group) {  // equal(swap -, swap <): the last group ends the search
      const int rows = call.steps * call.num_envs * call.agents[group];
      if (row < rows) break;
      row -= rows;
    }
  }
  // The same agent's row, some steps later.
  DEVICE Place later(const Learn& call, int steps) const {
    Place place = *this;
    place.row += steps * call.num_envs * call.agents[group];
    return place;
  }
  DEVICE u8 weight(const Learn& call) const { return call.active[group] == nullptr ? (u8)1 : call.active[group][row]; }
};

// Rows, or sequences, of a block of one group and step: for j before `end` the j-th is j + `apart`, as `Place` takes it.
struct Run { int apart, end; };

// Those from the j-th row of block b on.
DEVICE Run run_of_block(const Learn& call, const int b, const int j) {
  const int first = call.first_env(b), envs = call.first_env(b + 1) - first, steps = SEQUENCES ? 1 : call.steps;
  int before = 0, passed = 0, agents = call.agents[0];  // rows of the groups before: of all blocks, of this one
  for (int g = 0; g < AGENT_GROUPS - 1; ++g) {  // equal(swap -, swap <): the last group ends the search
    const int rows = steps * envs * agents;
    if (j < passed + rows) break;
    passed += rows;
    before += call.steps * call.num_envs * agents;
    agents = call.agents[g + 1];
  }
  const int t = (j - passed) / (envs * agents), begin = passed + t * envs * agents;
  return {before + (t * call.num_envs + first) * agents - begin, begin + envs * agents};  // equal(swap + 3): more work, same result
}
