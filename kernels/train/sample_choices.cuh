// sample_choices.cuh -- Sample a policy with one or more discrete heads: one action for each row (choices.cuh).
//
// Constants: HEADS, CHOICES (the sum of all heads' sizes), LARGEST (head). Generated: head_size(head).
#pragma once
#include "train/choices.cuh"
#include "generated/spaces.cuh"

struct Sample {
  int num_envs, agents;        // N, C
  int first_env, first_agent;  // global ids
  int greedy;                  // 1: take the likeliest choice, the lowest one of equals
  int stride, value_stride;    // numbers from one row to the next, of the parameters and of value
  const u64* seed;             // (1)
  const Clock* clock;          // (N)
  const float* parameters;     // (N, C, CHOICES): logits
  const u8* mask;              // (N, C, CHOICES) or null: allowed choices. A head without allowed choices is not masked
  int* action;                 // (N, C, HEADS), in [0, head_size)
  const float* value;          // (N, C) or null: values of the critic, with rows `value_stride` apart
  float* value_row;            // (N, C): copy of `value`
  float* log_prob;             // (N, C) or null: log-probability, summed over heads
  float* entropy;              // (N, C) or null: in nats, summed over heads
};

struct Space {
  static constexpr int HEADS = ::HEADS, LARGEST = ::LARGEST;
  static DEVICE int size(int head) { return head_size(head); }
};

// Sample row (e, i) of [0, N * C) with these logits.
DEVICE void sample_row(const Sample& call, const int row, const float* logits) {
  const int e = row / call.agents, i = row - e * call.agents;
  const Clock clock = call.clock[e];
  const Random random{*call.seed, (u32)(call.first_env + e), clock.episode - 1, (u32)clock.elapsed, POLICY};
  // Workaround for NVRTC 13.0.88 on sm_90: compiled from `null ? nullptr : pointer`, a test may read the pointer's register one
  // cycle before it is written, so that a null mask is dereferenced.
  const u8* const mask = call.mask + (call.mask == nullptr ? 0 : (size_type)row * CHOICES);
  float entropy = 0.0f;
  const float log_prob = policy::draw_choices<Space>(
      random, call.first_agent + i, logits, mask, call.greedy, [&](int head, int action, const auto& choices) INLINED {
        call.action[(size_type)row * HEADS + head] = action;
        if (call.entropy != nullptr) entropy += choices.entropy();  // mutant(dropped condition): more work, same result
      });
  if (call.log_prob != nullptr) call.log_prob[row] = log_prob;
  if (call.value != nullptr) call.value_row[row] = call.value[(size_type)row * call.value_stride];
  if (call.entropy != nullptr) call.entropy[row] = entropy;
}
