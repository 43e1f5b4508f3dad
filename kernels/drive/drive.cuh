// drive.cuh -- The kernels of all environments: env_reset, env_step, env_rollout.
//
// These files have everything that environments share: loading and storing the state, the time limit, autoreset in the same step
// (Gymnasium's SAME_STEP), final_obs, episode return, length and metrics, random actions. step.cuh lists the phases.
#pragma once
#include "drive/phases.cuh"
#include "generated/agreement.cuh"
#ifdef TEAM_THREADS
#include "drive/entries.cuh"
#endif
#define BUSY_THREADS 768  // per SM of a GPU, if a team fills a block (backend/cuda_launch.cuh)
#include "drive/launch.cuh"

KERNEL(env_reset, Batch, call.num_envs, reset_env(call, team, *work, e))

// Number of steps that a CPU takes of one environment before it proceeds to the next (launch.cuh): four, because random bits are
// drawn for four steps together, or all of them, if rows are so large that those of an environment fill whole pages.
constexpr int PIECE = OBS_ENTRIES * (int)sizeof(obs_t) < 2048 ? 4 : 0x7fffffff;
#if defined(__CUDACC__) || defined(TEAM_THREADS) || defined(DEBUG_BOUNDS) || defined(COUNT_OPERATIONS) || !ONE_AGENT || PRINTS || COMPACT_OBS
KERNEL_OF_STEPS(env_step, Batch, call.num_envs, 1, call.steps, PIECE, advance_env<false>(call, team, *work, e, from, until))
KERNEL_OF_STEPS(env_rollout, Batch, call.num_envs, 1, call.steps, PIECE, advance_env<true>(call, team, *work, e, from, until))
#else
#include "drive/simd.cuh"
template <bool RANDOM>
DEVICE void advance(const Batch& batch, const Team team, Workspace& work, const int e, const int count, const int from,
                    const int until) {
  if constexpr (SIDE_BY_SIDE) advance_together<RANDOM>(batch, e, count, from, until);
  else advance_env<RANDOM>(batch, team, work, e, from, until);
}
constexpr int AT_ONCE = SIDE_BY_SIDE ? LANES : 1;
KERNEL_OF_STEPS(env_step, Batch, call.num_envs, AT_ONCE, call.steps, PIECE,
                advance<false>(call, team, *work, e, count, from, until))
KERNEL_OF_STEPS(env_rollout, Batch, call.num_envs, AT_ONCE, call.steps, PIECE,
                advance<true>(call, team, *work, e, count, from, until))
#endif
