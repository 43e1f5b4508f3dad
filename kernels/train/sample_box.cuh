// sample_box.cuh -- Sample a policy over a Box: one action for each row (boxes.cuh).
//
// Random numbers: purpose POLICY of random.cuh. Constants: HEADS, SQUASHED. Generated: box_low(head), box_span(head).
#pragma once
#include "train/boxes.cuh"
#include "generated/spaces.cuh"

struct Sample {
  int num_envs, agents;        // N, C
  int first_env, first_agent;  // global ids
  int greedy;                  // 1: take the mean
  int stride, value_stride;    // numbers from one row to the next, of the parameters and of value
  const u64* seed;             // (1)
  const Clock* clock;          // (N)
  const float* parameters;     // (N, C, 2 * HEADS): means, log standard deviations
  float* raw;                  // (N, C, HEADS): actions before squashing
  float* action;               // (N, C, HEADS)
  const float* value;          // (N, C) or null: values of the critic, with rows `value_stride` apart
  float* value_row;            // (N, C): copy of `value`
  float* log_prob;             // (N, C) or null: log-density of the action
};

struct Space {
  static constexpr int HEADS = ::HEADS;
  static constexpr bool SQUASHED = ::SQUASHED;
  static DEVICE float low(int head) { return box_low(head); }
  static DEVICE float span(int head) { return box_span(head); }
};

// Sample row (e, i) of [0, N * C) with these means and log standard deviations.
DEVICE void sample_row(const Sample& call, const int row, const float* parameters) {
  const int e = row / call.agents, i = row - e * call.agents;
  const Clock clock = call.clock[e];
  const Random random{*call.seed, (u32)(call.first_env + e), clock.episode - 1, (u32)clock.elapsed, POLICY};
  const float log_prob = policy::draw_from_box<Space>(
      random, call.first_agent + i, parameters, call.greedy,
      [&](int head, float action, float raw) INLINED {
        call.raw[(size_type)row * HEADS + head] = raw;
        call.action[(size_type)row * HEADS + head] = action;
      });
  if (call.log_prob != nullptr) call.log_prob[row] = log_prob;
  if (call.value != nullptr) call.value_row[row] = call.value[(size_type)row * call.value_stride];
}
