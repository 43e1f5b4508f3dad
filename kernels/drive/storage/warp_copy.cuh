// warp_copy.cuh -- Observations of a warp's environments, one thread each, are stored together (CUDA only).
//
// Rows of adjacent environments are contiguous in global memory. If each thread stored its own row, every word of every row would
// be a separate memory request. Rows are therefore first collected contiguously in shared memory, from which the warp stores 512
// bytes at a time.
#pragma once
#include "drive/storage/direct.cuh"

struct WarpCopyObs {
  static constexpr int LANES = 32;
  template <class Kind> struct OnChip {};  // nothing in the workspace, which belongs to one thread
  static constexpr bool SPREAD = false;
  template <class Kind> static constexpr int ENTRIES = Kind::COUNT * Kind::ObsRows::ENTRIES;  // entries of one environment
  template <class Kind> struct OfWarp { alignas(16) typename Kind::ObsRows::OnChip obs[LANES * ENTRIES<Kind>]; };
  static constexpr int SHARED_BYTES = sizeof(EachGroup<OfWarp>) * (ENVS_PER_BLOCK / LANES);
  const Team team;
  const EachGroup<GroupRows>& rows;
  EachGroup<OfWarp>& on_chip;
  const int lane, count;  // of this environment, [0, count), and number of environments in the warp, [1, LANES]
  const int e, num_envs;

  DEVICE WarpCopyObs(const Team team, const EachGroup<GroupRows>& rows, EachGroup<OnChip>&, const int e, const int num_envs)
      : team(team), rows(rows), on_chip(((EachGroup<OfWarp>*)block_memory())[threadIdx.x / LANES]), lane(threadIdx.x % LANES),
        count(math::min(LANES, num_envs - (e - lane))), e(e), num_envs(num_envs) {}

  DEVICE void begin() const {
    each_group([&](auto kind, const auto& global, auto& of_warp) INLINED {
      if constexpr (!kind.BITS) {
        begin_copy<kind.COUNT * kind.OBS>(of_warp.obs, global.current_obs + first() * (kind.COUNT * kind.OBS));
      }
    }, rows, on_chip);
  }
  DEVICE void copy_first() const {
    end_copies();
    each_group([&](auto kind, const auto& global, auto& of_warp) INLINED {
      constexpr int SIZE = kind.COUNT * kind.OBS;
      if constexpr (kind.BITS) copy_current_flags(team, global, e, num_envs);
      else copy<SIZE>(global.obs - (num_envs - first()) * SIZE, of_warp.obs);
    }, rows, on_chip);
    sync();  // on-chip observations are read before they are overwritten
  }
  DEVICE void row(Env& env, View, size_type) const {
    each_group([&](auto kind, auto& group, auto& of_warp) INLINED {
      group.obs_row = of_warp.obs + lane * ENTRIES<decltype(kind)>;
      if constexpr (kind.BITS) clear_rows<decltype(kind)>(team, group.obs_row);
    }, env, on_chip);
  }
  DEVICE void keep(const View view, const size_type r) const {
    if (view == FINAL) keep_own(view, r);
  }
  DEVICE void keep_own(const View view, const size_type r) const {
    each_group([&](auto kind, const auto& global, auto& of_warp) INLINED {
      store_obs<decltype(kind)>(team, global_obs(global, view, r), of_warp.obs + lane * ENTRIES<decltype(kind)>, global.packed);
    }, rows, on_chip);
  }
  DEVICE void commit(const size_type r) const {
    sync();  // all lanes' rows are written before they are stored
    each_group([&](auto kind, const auto& global, auto& of_warp) INLINED {
      auto* const to = global_obs(global, NEXT, r - lane);
      if constexpr (!kind.BITS) {
        copy<ENTRIES<decltype(kind)>>(to, of_warp.obs);
      } else if (global.packed) {
        copy<ENTRIES<decltype(kind)>>((u32*)to, of_warp.obs);
      } else if (lane < count) {
        store_flags<decltype(kind)>(lane, count, to, of_warp.obs, count * kind.COUNT, false);
      }
    }, rows, on_chip);
    sync();  // on-chip observations are read before they are overwritten
  }

 private:
  DEVICE size_type first() const { return e - lane; }  // first environment of the warp
  DEVICE void sync() const { __syncwarp(Team::WARP); }

  // Copy the rows of all environments, `SIZE` entries each. to, from: those of the first environment.
  template <int SIZE, class T> DEVICE void copy(T* to, const T* from) const {
    constexpr int PIECES = pieces(SIZE, sizeof(T));
    if (wide(SIZE * sizeof(T), to, from)) {
      UNROLL for (int k = 0; k < PIECES; k += LANES) {
        if (k + lane < PIECES) __stcs((int4*)to + k + lane, ((const int4*)from)[k + lane]);
      }
    } else {
      for (int k = lane; k < count * SIZE; k += count) to[k] = from[k];
    }
  }

  // Start the same copy from global to shared memory, asynchronously and without registers. It is complete after `end_copies`.
  template <int SIZE, class T> DEVICE void begin_copy(T* to, const T* from) const {
    constexpr int PIECES = pieces(SIZE, sizeof(T));
    if (wide(SIZE * sizeof(T), to, from)) {
      UNROLL for (int k = 0; k < PIECES; k += LANES) {
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
    sync();  // all lanes' copies are complete before they are read
  }
  static DEVICE void copy_piece(int4* to, const int4* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
    *to = *from;
#endif
  }
  static DEVICE constexpr int pieces(const int size, const int entry) { return size * LANES * entry / 16; }
  DEVICE bool wide(const int bytes, const void* to, const void* from) const {
    return count == LANES && bytes * LANES % 16 == 0 && ((u64)to | (u64)from) % 16 == 0;
  }
};
