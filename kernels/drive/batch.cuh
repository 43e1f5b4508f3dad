// batch.cuh -- Arguments of a kernel, and an environment's on-chip memory (registers or shared memory) during a launch.
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
#else  // for staged rows, too, `obs` is their final place
typedef TeamObs<false> Observations;
#endif

struct Batch {
  Params params;
  int num_envs, first_env;   // N, global id of environment 0
  int steps;                 // T. If it is 0, env_reset only observes the current states
  int max_episode_steps;
  float inverse_horizon;     // 1 / max_episode_steps
  const u64* seed;           // (1)
  State* state;              // (N)
  Clock* clock;              // (N)
  Metrics* metrics;          // (N): counts since the episode began
  const u8* mask;            // (N) or null (all): environments that env_reset resets, and that env_step may reset at an end
  u8* terminated;            // (T, N)
  u8* truncated;             // (T, N)
  int* episode_length;       // (T, N) * RECORD. Rows are written where an episode ended
  Metrics* episode_metrics;  // (T, N). Written in the same rows
  EachGroup<GroupRows> rows;
  Printed* printed;          // null unless the kernel prints
  Cache* cache;              // (N)
#if HAS_TABLES
  Table table;               // pointers to arrays that all batches of a device share
#endif
};

// On-chip memory of one environment during a launch: registers or the stack for a team of one, shared memory for larger teams. Data
// that do not fit stay in global memory.
struct alignas(16) OnChipState { State value; };
// An environment's cache is on chip only in the shared memory of a team. It is too large for the registers of one thread.
struct alignas(16) OnChipCache { Cache value; };
constexpr bool CACHE_ON_CHIP = HAS_CACHE && STATE_ON_CHIP && TEAM > 1 && sizeof(Cache) % 4 == 0;
struct Contents {
  Choose<STATE_ON_CHIP, OnChipState, NoRows>::type state;
  Choose<CACHE_ON_CHIP, OnChipCache, NoRows>::type cache;
  EachGroup<WorkRows> rows;
  EachGroup<Observations::OnChip> obs;
  Shared shared;
};

// Teams that share a warp have adjacent workspaces in shared memory, which has 32 banks of 4 bytes. The size of a workspace is TEAM
// words more than a multiple of 32 words. If all threads read a word of their own agent at once, no two threads of the warp
// therefore touch the same bank.
#ifdef __CUDACC__
constexpr int BANK_WORDS = TEAM < 4 ? 4 : TEAM;
constexpr int SPARE_WORDS = TEAM == 1 || TEAM >= 32 ? 0 : (32 + BANK_WORDS - (int)(sizeof(Contents) / 4) % 32) % 32;
#else
constexpr int SPARE_WORDS = 0;  // mutant(swap = 0;, constant): more room, never read
#endif
template <int WORDS> struct Spare { int word[WORDS]; };
template <> struct Spare<0> {};  // mutant(constant): CPU compilers make an empty array
struct Workspace : Contents { [[maybe_unused]] Spare<SPARE_WORDS> spare; };
