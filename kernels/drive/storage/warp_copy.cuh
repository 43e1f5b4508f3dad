// warp_copy.cuh -- Observations of a warp's environments, one thread each, are stored together (CUDA only).
//
// They are contiguous in global memory, but stores of each thread would take as many requests as words. Rows are therefore also
// contiguous in shared memory, from which the warp stores 512 bytes at a time.
#pragma once
#include "drive/storage/direct.cuh"

struct WarpCopyObs {
  static constexpr int LANES = 32;
  template <class Kind> struct Near {};  // nothing in the workspace, which belongs to one thread
  static constexpr bool SPREAD = false;
  template <class Kind> static constexpr int NEAR = Kind::COUNT * Kind::ObsRows::NEAR;  // entries of one environment
  template <class Kind> struct OfWarp { alignas(16) typename Kind::ObsRows::Near obs[LANES * NEAR<Kind>]; };
  static constexpr int SHARED_BYTES = sizeof(EachGroup<OfWarp>) * (ENVS_PER_BLOCK / LANES);
  const Team team;
  const EachGroup<GroupRows>& rows;
  EachGroup<OfWarp>& near;
  const int lane, count;  // of this environment, [0, count), and number of environments in the warp, [1, LANES]
  const int e, num_envs;

  DEVICE WarpCopyObs(const Team team, const EachGroup<GroupRows>& rows, EachGroup<Near>&, const int e, const int num_envs)
      : team(team), rows(rows), near(((EachGroup<OfWarp>*)block_memory())[threadIdx.x / LANES]), lane(threadIdx.x % LANES),
        count(math::min(LANES, num_envs - (e - lane))), e(e), num_envs(num_envs) {}

  DEVICE void begin() const {
    each_group([&](auto kind, const auto& far, auto& of_warp) INLINED {
      if constexpr (!kind.BITS) {
        begin_copy<kind.COUNT * kind.OBS>(of_warp.obs, far.current_obs + first() * (kind.COUNT * kind.OBS));
      }
    }, rows, near);
  }
  DEVICE void copy_first() const {
    end_copies();
    each_group([&](auto kind, const auto& far, auto& of_warp) INLINED {
      constexpr int SIZE = kind.COUNT * kind.OBS;
      if constexpr (kind.BITS) copy_current_flags(team, far, e, num_envs);
      else copy<SIZE>(far.obs - (num_envs - first()) * SIZE, of_warp.obs);
    }, rows, near);
    sync();  // near observations are read before they are overwritten
  }
  DEVICE void row(Env& env, View, size_type) const {
    each_group([&](auto kind, auto& group, auto& of_warp) INLINED {
      group.obs_row = of_warp.obs + lane * NEAR<decltype(kind)>;
      if constexpr (kind.BITS) clear_rows<decltype(kind)>(team, group.obs_row);
    }, env, near);
  }
  DEVICE void keep(const View view, const size_type r) const {
    if (view == FINAL) keep_own(view, r);
  }
  DEVICE void keep_own(const View view, const size_type r) const {
    each_group([&](auto kind, const auto& far, auto& of_warp) INLINED {
      store_obs<decltype(kind)>(team, far_obs(far, view, r), of_warp.obs + lane * NEAR<decltype(kind)>, far.packed);
    }, rows, near);
  }
  DEVICE void commit(const size_type r) const {
    sync();  // all lanes' rows are written before they are stored
    each_group([&](auto kind, const auto& far, auto& of_warp) INLINED {
      auto* const to = far_obs(far, NEXT, r - lane);
      if constexpr (!kind.BITS) {
        copy<NEAR<decltype(kind)>>(to, of_warp.obs);
      } else if (far.packed) {
        copy<NEAR<decltype(kind)>>((u32*)to, of_warp.obs);
      } else if (lane < count) {
        store_flags<decltype(kind)>(lane, count, to, of_warp.obs, count * kind.COUNT, false);
      }
    }, rows, near);
    sync();  // near observations are read before they are overwritten
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
