// cuda_team.cuh -- A team on an NVIDIA GPU: lanes of one warp, or a whole block. Also its memory operations.
#pragma once
constexpr int WARP_SIZE = 32;                 // lanes of a warp, one bit each in a u32
constexpr u32 ALL_LANES_OF_WARP = 0xffffffffu;

struct Team : Member {
  using Member::sum, Member::min, Member::before, Member::add;  // these reject floats
  // Active lanes of a warp. Lanes without an environment have left the kernel. The mask is a constant: one that the compiler does
  // not know costs thirty cycles.
  static constexpr u32 WARP =
      TEAM * ENVS_PER_BLOCK < WARP_SIZE ? (1u << TEAM * ENVS_PER_BLOCK % WARP_SIZE) - 1u : ALL_LANES_OF_WARP;

  // Lanes of this team within its warp. Teams of more than 32 threads use whole warps.
  DEVICE u32 lanes() const {
#if TEAM >= 32
    return ALL_LANES_OF_WARP;
#else
    return ((1u << TEAM) - 1u) << (threadIdx.x & 31u & ~(TEAM - 1u));
#endif
  }
  // Writes of all threads before it, in shared or global memory, are visible to all threads after it.
  DEVICE void sync() const {
    if constexpr (TEAM > 32) __syncthreads();
    else if constexpr (TEAM > 1) __syncwarp(lanes());
  }
  // The same for the team's threads in this warp.
  DEVICE void warp_sync() const { __syncwarp(lanes()); }
  DEVICE bool any(bool mine) const {
    if constexpr (TEAM > 32) return __syncthreads_or(mine);
    else if constexpr (TEAM > 1) { __syncwarp(lanes()); return __any_sync(lanes(), mine); }
    else return mine;
  }
  // Warp vote (__ballot_sync) over the lanes that share a sector of 32 bytes: whether `mine` holds for this environment or, in
  // teams of one, for another whose rows are in the same sector. A GPU writes memory in sectors, and must read the rest of a sector
  // that is written in part. If one environment has a row to store, all those with rows in the same sector therefore store theirs.
  DEVICE bool sector_any(bool mine, [[maybe_unused]] u32 sector_lanes) const {
    if constexpr (TEAM > 1) return mine;
    else return (__ballot_sync(WARP, mine) & sector_lanes) != 0;
  }
  // Mask of the lanes of those environments. A row has 8 bytes if an environment has one agent, otherwise 4.
  DEVICE u32 sector_lanes() const {
    constexpr u32 LANES = ONE_AGENT ? 4 : 8;
    return ((1u << LANES) - 1u) << (threadIdx.x & (32u - LANES));
  }
  // __syncthreads, only for speed: the warps of a block of teams of one begin a step together, so that their adjacent writes leave
  // the cache together.
  DEVICE void in_step(const int num_envs) const {
    if constexpr (TEAM == 1 && ENVS_PER_BLOCK > 32 && ONE_AGENT) {
      if ((int)(blockIdx.x + 1) * ENVS_PER_BLOCK <= num_envs) __syncthreads();  // in a full block no thread has left
    }
  }
  // Whether `mine` holds for any of the team's threads in this warp or, in teams of one, for any environment of the warp.
  DEVICE bool warp_any(bool mine) const { return __any_sync(TEAM == 1 ? WARP : lanes(), mine); }
  DEVICE int sum(int mine) const { return reduce(mine, Sum()); }
  template <class T> DEVICE T min(T mine) const { return reduce(mine, Min()); }  // T: int, u32, i64 or u64
  // Exclusive prefix sum over the threads by rank. all: the total.
  DEVICE int before(int mine, int* all) const {
    constexpr int WIDTH = TEAM < 32 ? TEAM : 32;
    int sum = mine;
    for (int offset = 1; offset < WIDTH; offset *= 2) {
      const int lower = __shfl_up_sync(lanes(), sum, offset, WIDTH);
      if (rank % WIDTH >= offset) sum += lower;
    }
    if constexpr (TEAM > 32) {
      __shared__ int of_warp[TEAM / 32 + 1];
      if (rank % 32 == 31) of_warp[rank / 32] = sum;
      __syncthreads();  // the warps' sums are written before they are read
      *all = 0;
      for (int warp = 0; warp < TEAM / 32; ++warp) {
        if (warp == rank / 32) mine -= *all;
        *all += of_warp[warp];
      }
      __syncthreads();  // of_warp is read before the next call overwrites it
    } else {
      *all = __shfl_sync(lanes(), sum, WIDTH - 1, WIDTH);
    }
    return sum - mine;
  }
  // Add to words[i], and return the old value. Several threads may do this between two syncs.
  template <int N> DEVICE int add(Array<int, N>& words, int i, int value) const {
    if constexpr (TEAM > 1) return atomicAdd(&words.of[i], value);
    const int was = words[i];
    words[i] += value;
    return was;
  }

 private:
  struct Sum {
    static constexpr bool OFTEN = false;  // whether a value may be combined more than once
    DEVICE int operator()(int a, int b) const { return a + b; }
  };
  struct Min {
    static constexpr bool OFTEN = true;
    template <class T> DEVICE T operator()(T a, T b) const { return b < a ? b : a; }
  };

  // Combine the values of WIDTH neighboring lanes.
  template <int WIDTH, class T, class F> DEVICE T of_lanes(T mine, F both) const {
#if __CUDA_ARCH__ >= 800
    constexpr bool AT_ONCE = WIDTH == 32 && sizeof(T) == 4;  // in one instruction
    if constexpr (AT_ONCE && F::OFTEN) return __reduce_min_sync(ALL_LANES_OF_WARP, mine);
    else if constexpr (AT_ONCE) return __reduce_add_sync(ALL_LANES_OF_WARP, mine);
    else
#endif
    if constexpr (WIDTH > 1) {
      for (int offset = WIDTH / 2; offset > 0; offset /= 2) mine = both(mine, __shfl_xor_sync(lanes(), mine, offset, WIDTH));
    }
    return mine;
  }

  template <class T, class F> DEVICE T reduce(T mine, F both) const {
    mine = of_lanes<(TEAM < 32 ? TEAM : 32)>(mine, both);
    if constexpr (TEAM > 32) {
      constexpr int WARPS = TEAM < 32 ? 1 : TEAM / 32;
      __shared__ T of_warp[WARPS];
      if (rank % 32 == 0) of_warp[rank / 32] = mine;
      __syncthreads();  // the warps' results are written before they are read
      mine = of_lanes<(F::OFTEN ? 32 : WARPS)>(of_warp[rank % WARPS], both);
      __syncthreads();  // of_warp is read before the next call overwrites it
    }
    return mine;
  }
};

// The warps of a block that step their own environments and compute the policies for them (play/play.cuh): WARPS_PER_SET warps, or
// one larger team. The warp sets of a block do not wait for each other. Each has its own named barrier, of the 15 besides that of
// __syncthreads.
#ifndef WARPS_PER_SET
#define WARPS_PER_SET 1
#endif
struct WarpSet {
  static constexpr int SIZE = TEAM <= WARP_SIZE ? WARP_SIZE * WARPS_PER_SET : TEAM;
  int rank, number;

  DEVICE void sync() const {
    if constexpr (SIZE > WARP_SIZE) asm volatile("bar.sync %0, %1;" : : "r"(number + 1), "n"(SIZE) : "memory");
    else __syncwarp();
  }
};
constexpr bool WEIGHTS_IN_SHARED = true;  // whether a block keeps weights in shared memory

// Programmatic dependent launch: wait until the previous launch in the stream has ended and its writes are visible. This kernel may
// have started while that launch still ran (cupydrive/executors/overlap.py). Before this call it writes nothing, and reads only
// older data.
DEVICE void await_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Programmatic dependent launch: let the next launch start as soon as all blocks of this one have called this, not when they end.
DEVICE void release_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Shared memory of this block.
DEVICE void* block_memory() {
  extern __shared__ int4 shared_memory[];
  return shared_memory;
}

// Shared memory of a block with a single team. It begins at the base of dynamic shared memory, an address known at compile time.
template <class Work> DEVICE Work& alone(Work*) { return *(Work*)block_memory(); }

// Keep a word in a register, by an empty asm statement that may change it. Otherwise the compiler would load a kernel's argument
// again from constant memory, which takes 25 cycles.
DEVICE void hold(u32& word) { asm volatile("" : "+r"(word)); }

// Index of the lowest set bit, in [0, 64). bits is not 0.
DEVICE int lowest_bit(u64 bits) { return __ffsll((i64)bits) - 1; }

// A thread is already one lane of its warp's vector.
constexpr int SIDE_FLOATS = 1;

// Set `word` to the minimum of itself and `value`, for concurrent threads.
DEVICE void atomic_min(u64* word, u64 value) { atomicMin(word, value); }
// Add to a sum of whole numbers, which is the same in any order.
DEVICE void atomic_add(double* sum, double value) { atomicAdd(sum, value); }

// __ldg: load data that no kernel writes during this launch, through the read-only cache, without waiting for earlier stores.
template <class T> DEVICE T load_constant(const T* from) { return __ldg(from); }

// __stcs, an evict-first store: for data that this launch does not read again.
template <class T> DEVICE void store_last(T* to, T value) { __stcs(to, value); }

// The same for two neighboring numbers, aligned to 8 bytes.
DEVICE void store_record(float* to, float first, int second) {
  __stcs((int2*)to, make_int2(__float_as_int(first), second));
}

template <bool LAST, int COUNT, class Piece> DEVICE void copy_pieces(const Team team, Piece* to, const Piece* from) {
  const auto store = [&](const int i, const Piece& piece) {
    if constexpr (LAST) __stcs(to + i, piece);
    else to[i] = piece;
  };
  constexpr int SHARE = own_count(COUNT), AT_ONCE = SHARE < 4 ? SHARE : 4;
  if constexpr (TEAM == 1 || (LAST && sizeof(Piece) == 16)) {
    for (int i : team.each(COUNT)) store(i, from[i]);
  } else {
    // Several loads precede the stores, because a load waits for earlier stores that might alias it. Pieces of 16 bytes from shared
    // memory are left to the compiler, which was faster (NOTES.md).
    for (int first = team.rank; first < COUNT; first += AT_ONCE * TEAM) {
      Piece kept[AT_ONCE];
      UNROLL for (int k = 0; k < AT_ONCE; ++k) {
        if (first + k * TEAM < COUNT) kept[k] = from[first + k * TEAM];
      }
      UNROLL for (int k = 0; k < AT_ONCE; ++k) {
        if (first + k * TEAM < COUNT) store(first + k * TEAM, kept[k]);
      }
    }
  }
}
template <bool LAST, int WORDS> DEVICE void copy_widest(const Team team, void* to, const void* from) {
  if constexpr (WORDS % 4 == 0) copy_pieces<LAST, WORDS / 4>(team, (int4*)to, (const int4*)from);
  else if constexpr (WORDS % 2 == 0) copy_pieces<LAST, WORDS / 2>(team, (int2*)to, (const int2*)from);
  else copy_pieces<LAST, WORDS>(team, (int*)to, (const int*)from);
}

template <int WORDS> DEVICE void copy_words(const Team team, void* to, const void* from) {
  copy_widest<false, WORDS>(team, to, from);
}
template <int WORDS> DEVICE void store_words(const Team team, void* to, const void* from) {
  copy_widest<true, WORDS>(team, to, from);
}
