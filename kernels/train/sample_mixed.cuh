// sample_mixed.cuh -- Sample a policy with discrete heads and a Box: one action for each row (mixed.cuh).
//
// Constants: HEADS, of which DISCRETE are discrete, and those of sample_choices.cuh and sample_box.cuh. Generated: their functions.
#pragma once
#include "train/mixed.cuh"
#include "generated/spaces.cuh"

struct Sample {
  int num_envs, agents;        // N, C
  int first_env, first_agent;  // global ids
  int greedy;                  // 1: take the likeliest choice, the lowest one of equals, and the mean
  int stride, value_stride;    // numbers from one row to the next, of the parameters and of value
  const u64* seed;             // (1)
  const Clock* clock;          // (N)
  const float* parameters;     // (N, C, CHOICES + 2 * (HEADS - DISCRETE)): logits, means, log standard deviations
  const u8* mask;              // (N, C, CHOICES) or null: allowed choices. A head without allowed choices is not masked
  float* raw;                  // (N, C, HEADS): choices, and entries of the Box before squashing
  float* action;               // (N, C, HEADS)
  const float* value;          // (N, C) or null: values of the critic, with rows `value_stride` apart
  float* value_row;            // (N, C): copy of `value`
  float* log_prob;             // (N, C) or null: log-probability, or its density, summed over heads
};

struct Space {
  static constexpr int CHOICES = ::CHOICES;
  struct Discrete {
    static constexpr int HEADS = DISCRETE, LARGEST = ::LARGEST;
    static DEVICE int size(int head) { return head_size(head); }
  };
  struct Box {
    static constexpr int HEADS = ::HEADS - DISCRETE;
    static constexpr bool SQUASHED = ::SQUASHED;
    static DEVICE float low(int head) { return box_low(head); }
    static DEVICE float span(int head) { return box_span(head); }
  };
};

// Sample row (e, i) of [0, N * C) with these parameters.
DEVICE void sample_row(const Sample& call, const int row, const float* parameters) {
  const int e = row / call.agents, i = row - e * call.agents;
  const Clock clock = call.clock[e];
  const Random random{*call.seed, (u32)(call.first_env + e), clock.episode - 1, (u32)clock.elapsed, POLICY};
  const u8* const mask = call.mask + (call.mask == nullptr ? 0 : (size_type)row * CHOICES);  // as in sample_choices.cuh
  const float log_prob = policy::draw_mixed<Space>(
      random, call.first_agent + i, parameters, mask, call.greedy, [&](int head, float action, float raw) INLINED {
        call.raw[(size_type)row * HEADS + head] = raw;
        call.action[(size_type)row * HEADS + head] = action;
      });
  if (call.log_prob != nullptr) call.log_prob[row] = log_prob;
  if (call.value != nullptr) call.value_row[row] = call.value[(size_type)row * call.value_stride];
}
