// episodes.cu -- Collect the episodes of a rollout: each environment's latest one, and how many have ended.
//
// A return is the mean over the agents of a group: SHARERS partial sums, which are then added in order, whatever the team.
// Letters: T steps, N environments, C agents of a group.
// Constants: AGENT_GROUPS, COLUMNS (numbers that are recorded of an episode: its length and metrics).
#include "drive/platform.cuh"

constexpr int ENVS = 32, SHARERS = 8;  // environments of one team, threads that divide the steps or agents of one

struct Workspace {
  int row[SHARERS][ENVS];   // in each split of the steps, one more than the last in which an episode ended, or 0
  float sum[SHARERS][ENVS];
};
struct Episodes {
  int num_envs, steps;
  int agents[AGENT_GROUPS];
  int return_stride[AGENT_GROUPS];     // numbers from one environment's returns to the next one's
  int stride[COLUMNS], whole[COLUMNS]; // words from one environment to the next, 1: they are ints, not floats
  const u8* terminated;                // (T, N)
  const u8* truncated;                 // (T, N)
  const void* column[COLUMNS];         // (T, N) words with that stride: length, metrics
  const float* returns[AGENT_GROUPS];  // (T, N, C)
  double* count;                       // (1): episodes so far
  float* latest;                       // (1 + AGENT_GROUPS + COLUMNS - 1, N): length, returns, metrics
};

// Count the episodes that ended in this thread's split of an environment's steps, and record the last of them.
DEVICE int look_for_ends(const Episodes& call, Workspace& work, const int first, const int i) {
  const int sharer = i / ENVS, slot = i % ENVS, e = first + slot;
  int row = 0, ended = 0;
  if (e < call.num_envs) {
    UNROLL_TIMES(4) for (int t = sharer * call.steps / SHARERS; t < (sharer + 1) * call.steps / SHARERS; ++t) {
      const size_type at = (size_type)t * call.num_envs + e;
      const bool over = call.terminated[at] | call.truncated[at];
      ended += over;
      row = over ? t + 1 : row;
    }
  }
  work.row[sharer][slot] = row;
  return ended;
}

// Collect the episodes of environments [ENVS * e, ENVS * (e + 1)).
DEVICE void take_in(const Episodes& call, const Team team, Workspace& work, const int e) {
  // mutant(swap -): empty environments ended no episode. mutant(swap <): equal where they meet
  const int first = e * ENVS, left = call.num_envs - first, count = left < ENVS ? left : ENVS;
  int ended = 0;
  for (int i : team.each(ENVS * SHARERS)) ended += look_for_ends(call, work, first, i);
  ended = team.sum(ended);
  if (ended > 0 && team.leader()) atomic_add(call.count, (double)ended);  // mutant(swap >): more work, same result
  team.sync();  // rows of all splits are written before they are read. mutant(dropped sync): a CPU's sum() has waited for all
  // Find the last episode over all splits.
  for (int slot : team.each(count)) {
    for (int sharer = 1; sharer < SHARERS; ++sharer) {
      if (work.row[sharer][slot] > 0) work.row[0][slot] = work.row[sharer][slot];
    }
  }
  team.sync();  // the last episodes are written before other threads read them
  const auto row_of = [&](int slot) INLINED { return (size_type)(work.row[0][slot] - 1) * call.num_envs + first + slot; };
  // Record length and metrics.
  for (int i : team.each(COLUMNS * ENVS)) {
    const int k = i / ENVS, slot = i % ENVS;
    if (work.row[0][slot] == 0) continue;
    const size_type at = row_of(slot) * call.stride[k];
    const float found = call.whole[k] ? (float)((const int*)call.column[k])[at] : ((const float*)call.column[k])[at];
    call.latest[(size_type)(k == 0 ? 0 : AGENT_GROUPS + k) * call.num_envs + first + slot] = found;
  }
  // Record mean returns.
  for (int g = 0; g < AGENT_GROUPS; ++g) {
    for (int i : team.each(ENVS * SHARERS)) {
      const int slot = i / SHARERS, sharer = i % SHARERS;
      if (work.row[0][slot] == 0) continue;
      const float* const returns = call.returns[g] + row_of(slot) * call.return_stride[g];
      float sum = 0.0f;
      UNROLL_TIMES(4) for (int agent = sharer; agent < call.agents[g]; agent += SHARERS) sum += returns[agent];
      work.sum[sharer][slot] = sum;
    }
    team.sync();  // partial sums are written before they are read
    for (int slot : team.each(count)) {
      if (work.row[0][slot] == 0) continue;
      float sum = 0.0f;
      for (int sharer = 0; sharer < SHARERS; ++sharer) sum += work.sum[sharer][slot];
      call.latest[(size_type)(1 + g) * call.num_envs + first + slot] = sum / (float)call.agents[g];
    }
    team.sync();  // partial sums are read before they are overwritten
  }
}

#include "drive/launch.cuh"
KERNEL(take_in_episodes, Episodes, (call.num_envs + ENVS - 1) / ENVS, take_in(call, team, *work, e))
