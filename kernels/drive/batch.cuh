// batch.cuh -- what a kernel is given, and what one environment keeps near while a launch runs.
//
// Letters: T steps, N environments, C agents of a group. Row (t, e) of an array (T, N, ...) is t * N + e.
#pragma once
#include "drive/storage/direct.cuh"
#if defined(__CUDACC__) && OBSERVATIONS == OBS_WARP_COPY
#include "drive/storage/warp_copy.cuh"
typedef WarpCopyObs Observations;
#define OBS_BYTES WarpCopyObs::SHARED_BYTES
#elif OBSERVATIONS == OBS_SHARED || OBSERVATIONS == OBS_WARP_COPY
typedef TeamObs<true> Observations;
#else  // of rows that are staged, too, `obs` leads to where they stay
typedef TeamObs<false> Observations;
#endif

struct Batch {
  Params params;
  int num_envs, first_env;   // N; the global id of environment 0
  int steps;                 // T; 0 in env_reset: begin nothing, observe the state that is there
  int max_episode_steps;
  float inverse_horizon;     // 1 / max_episode_steps
  const u64* seed;           // (1)
  State* state;              // (N)
  Clock* clock;              // (N)
  Metrics* metrics;          // (N) counts since the episode began
  const u8* mask;            // (N) or null (all): which env_reset resets, and which env_step may reset at an end
  u8* terminated;            // (T, N)
  u8* truncated;             // (T, N)
  int* episode_length;       // (T, N) * RECORD; rows written where an episode ended
  Metrics* episode_metrics;  // (T, N); likewise
  EachGroup<GroupRows> rows;
  Printed* printed;          // null unless the kernel prints
  Cache* cache;              // (N)
#if HAS_TABLES
  Table table;               // pointers: the arrays are the same for all batches of a device
#endif
};

// What one environment keeps near while a launch runs: in registers or on the stack for a team of one, in shared
// memory for larger teams; what does not fit stays in global memory.
struct alignas(16) NearState { State value; };
// What an environment keeps from step to step is near in a team's shared memory alone: it is too much for one thread's registers.
struct alignas(16) NearCache { Cache value; };
constexpr bool CACHE_NEAR = HAS_CACHE && STATE_NEAR && TEAM > 1 && sizeof(Cache) % 4 == 0;
struct Contents {
  Choose<STATE_NEAR, NearState, NoRows>::type state;
  Choose<CACHE_NEAR, NearCache, NoRows>::type cache;
  EachGroup<WorkRows> rows;
  EachGroup<Observations::Near> obs;
  Shared shared;
};

// Teams that share a warp have their workspaces side by side in shared memory, which has 32 banks of 4 bytes. The size of a
// workspace is made TEAM words more than a multiple of 32 words. So where all members read a word of their own agent at once,
// no two members of the warp touch the same bank.
#ifdef __CUDACC__
constexpr int BANK_WORDS = TEAM < 4 ? 4 : TEAM;
constexpr int SPARE_WORDS = TEAM == 1 || TEAM >= 32 ? 0 : (32 + BANK_WORDS - (int)(sizeof(Contents) / 4) % 32) % 32;
#else
constexpr int SPARE_WORDS = 0;  // equal(swap = 0;, constant): more room, never read
#endif
template <int WORDS> struct Spare { int word[WORDS]; };
template <> struct Spare<0> {};  // equal(constant): CPU compilers make an empty array
struct Workspace : Contents { [[maybe_unused]] Spare<SPARE_WORDS> spare; };
