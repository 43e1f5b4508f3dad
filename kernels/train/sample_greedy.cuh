// sample_greedy.cuh -- Sample an epsilon-greedy policy with one discrete head: one action for each row (greedy.cuh).
//
// Constant: CHOICES.
#pragma once
#include "train/greedy.cuh"

struct Sample {
  int num_envs, agents;        // N, C
  int first_env, first_agent;  // global ids
  int greedy;                  // 1: no random choice
  int stride, value_stride;    // numbers from one row to the next, of the parameters and of value
  const u64* seed;             // (1)
  const Clock* clock;          // (N)
  const float* parameters;     // (N, C, CHOICES): action values
  const u8* mask;              // (N, C, CHOICES) or null: allowed choices. A row without allowed choices is not masked
  int* action;                 // (N, C)
  const float* value;          // not read
  float* value_row;            // (N, C) or null: the largest value of an allowed action
  float* log_prob;             // (N, C) or null: the value of the action
  const float* epsilon;        // (1)
};

// Action values of a row.
DEVICE policy::ActionValues<CHOICES> action_values(const Sample& call, const int row, const float* values) {
  return {values, call.mask + (call.mask == nullptr ? 0 : (size_type)row * CHOICES)};  // as in sample_choices.cuh
}

// Sample row (e, i) of [0, N * C) with these action values.
DEVICE void sample_row(const Sample& call, const int row, const float* values) {
  const int e = row / call.agents, i = row - e * call.agents;
  const auto choices = action_values(call, row, values);
  const Clock clock = call.clock[e];
  const Random random{*call.seed, (u32)(call.first_env + e), clock.episode - 1, (u32)clock.elapsed, POLICY};
  const int action = choices.draw(random, call.first_agent + i, call.greedy, *call.epsilon);
  call.action[row] = action;
  if (call.value_row != nullptr) call.value_row[row] = choices.top;
  if (call.log_prob != nullptr) call.log_prob[row] = values[action];
}
