// beside.cuh -- how teams of one that have several agents move observations on a GPU: those of a warp's environments together.
//
// They lie one after the other in global memory, but rows that threads store one by one are as many requests as words. Near
// observations of whole warps (SIDE_OBS) lie likewise in shared memory, from where the warp stores 512 bytes at a time.
#pragma once
#include "drive/halves.cuh"

#if defined(__CUDACC__) && TEAM == 1 && !ONE_AGENT
#define BESIDE 1
#define SIDE_OBS (OBS_NEAR && ENVS_PER_BLOCK >= 32)

struct Beside {
  static constexpr int MOST = ENVS_PER_BLOCK < 32 ? ENVS_PER_BLOCK : 32;
  const int lane, count;  // of this environment, [0, count); of environments in the warp, [1, MOST]

  DEVICE Beside(const int e, const int num_envs) : lane(threadIdx.x % 32), count(math::min(MOST, num_envs - (e - lane))) {}
  DEVICE void sync() const { __syncwarp(Team::WARP); }

  // Copies the rows of all, `SIZE` entries each, from and to those of the first one.
  template <int SIZE> DEVICE void copy(obs_t* to, const obs_t* from) const {
    constexpr int PIECES = pieces(SIZE);
    if (wide(SIZE, to, from)) {
      UNROLL for (int k = 0; k < PIECES; k += MOST) {
        if (k + lane < PIECES) __stcs((int4*)to + k + lane, ((const int4*)from)[k + lane]);
      }
    } else {
      for (int k = lane; k < count * SIZE; k += count) to[k] = from[k];
    }
  }

  // The same from global to shared memory, all at once and through no registers: `to` has it after `end_copies`.
  template <int SIZE> DEVICE void begin_copy(obs_t* to, const obs_t* from) const {
    constexpr int PIECES = pieces(SIZE);
    if (wide(SIZE, to, from)) {
      UNROLL for (int k = 0; k < PIECES; k += MOST) {
        if (k + lane < PIECES) copy_piece((int4*)to + k + lane, (const int4*)from + k + lane);
      }
    } else {
      for (int k = lane; k < count * SIZE; k += count) to[k] = from[k];
    }
  }
  DEVICE void end_copies() const {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    sync();
  }

 private:
  static DEVICE void copy_piece(int4* to, const int4* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
    *to = *from;
#endif
  }
  static DEVICE constexpr int pieces(const int size) { return size * MOST * (int)sizeof(obs_t) / 16; }
  DEVICE bool wide(const int size, const void* to, const void* from) const {
    return count == MOST && size * MOST * sizeof(obs_t) % 16 == 0 && ((u64)to | (u64)from) % 16 == 0;
  }
};
#else
#define BESIDE 0
#define SIDE_OBS 0
#endif

#if SIDE_OBS
template <class Kind> struct SideRows { alignas(16) obs_t obs[Beside::MOST * Kind::COUNT * Kind::OBS]; };
typedef EachGroup<SideRows> SideObs;
#define BLOCK_BYTES (sizeof(SideObs) * (ENVS_PER_BLOCK / Beside::MOST))
DEVICE SideObs& side_obs() { return ((SideObs*)block_memory())[threadIdx.x / 32]; }
#endif
