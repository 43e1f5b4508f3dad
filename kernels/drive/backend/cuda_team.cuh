// cuda_team.cuh -- a team on an NVIDIA GPU: lanes of one warp, or a whole block; and what it does with memory.
#pragma once
constexpr int WARP_SIZE = 32;                 // lanes of a warp, a bit each in a u32
constexpr u32 ALL_LANES_OF_WARP = 0xffffffffu;

struct Team : Member {
  using Member::sum, Member::min, Member::before, Member::add;  // which refuse floats
  // The lanes of a warp; those without an environment have left the kernel and are waited for no more. A constant: a mask
  // that the compiler does not know costs thirty cycles.
  static constexpr u32 WARP =
      TEAM * ENVS_PER_BLOCK < WARP_SIZE ? (1u << TEAM * ENVS_PER_BLOCK % WARP_SIZE) - 1u : ALL_LANES_OF_WARP;

  // The lanes of this team within its warp; teams of more than 32 use whole warps.
  DEVICE u32 lanes() const {
#if TEAM >= 32
    return ALL_LANES_OF_WARP;
#else
    return ((1u << TEAM) - 1u) << (threadIdx.x & 31u & ~(TEAM - 1u));
#endif
  }
  // What members wrote before, in shared or global memory, all members see after.
  DEVICE void sync() const {
    if constexpr (TEAM > 32) __syncthreads();
    else if constexpr (TEAM > 1) __syncwarp(lanes());
  }
  // The same for the members in this one's warp.
  DEVICE void warp_sync() const { __syncwarp(lanes()); }
  DEVICE bool any(bool mine) const {
    if constexpr (TEAM > 32) return __syncthreads_or(mine);
    else if constexpr (TEAM > 1) { __syncwarp(lanes()); return __any_sync(lanes(), mine); }
    else return mine;
  }
  // Whether `mine` holds for this environment, or (teams of one) for another whose rows lie in the same 32 bytes.
  // A GPU writes memory in pieces of 32 bytes, and to write a part of a piece it reads the rest first. So where one environment
  // has a row to store, all those whose rows lie in the same piece store theirs.
  DEVICE bool near_any(bool mine, [[maybe_unused]] u32 near_lanes) const {
    if constexpr (TEAM > 1) return mine;
    else return (__ballot_sync(WARP, mine) & near_lanes) != 0;
  }
  // The lanes of those environments: a row is a record of 8 bytes if an environment has one agent, else 4 bytes long.
  DEVICE u32 near_lanes() const {
    constexpr u32 LANES = ONE_AGENT ? 4 : 8;
    return ((1u << LANES) - 1u) << (threadIdx.x & (32u - LANES));
  }
  // For speed alone: the warps of a block of teams of one begin a step together, so that what they write, which lies side by
  // side, leaves the cache together.
  DEVICE void in_step(const int num_envs) const {
    if constexpr (TEAM == 1 && ENVS_PER_BLOCK > 32 && ONE_AGENT) {
      if ((int)(blockIdx.x + 1) * ENVS_PER_BLOCK <= num_envs) __syncthreads();  // in a full block nobody has left
    }
  }
  // Whether `mine` holds for any member in this one's warp; in teams of one, for any environment of the warp.
  DEVICE bool warp_any(bool mine) const { return __any_sync(TEAM == 1 ? WARP : lanes(), mine); }
  DEVICE int sum(int mine) const { return reduce(mine, Sum()); }
  template <class T> DEVICE T min(T mine) const { return reduce(mine, Min()); }  // T: int, u32, i64 or u64
  // What the members of lower rank have, added up; and what all have.
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
      __syncthreads();
      *all = 0;
      for (int warp = 0; warp < TEAM / 32; ++warp) {
        if (warp == rank / 32) mine -= *all;
        *all += of_warp[warp];
      }
      __syncthreads();  // of_warp is written again by the next call
    } else {
      *all = __shfl_sync(lanes(), sum, WIDTH - 1, WIDTH);
    }
    return sum - mine;
  }
  // Adds to words[i], which several members may do between two syncs; returns what it was.
  template <int N> DEVICE int add(Array<int, N>& words, int i, int value) const {
    if constexpr (TEAM > 1) return atomicAdd(&words.of[i], value);
    const int was = words[i];
    words[i] += value;
    return was;
  }

 private:
  struct Sum {
    static constexpr bool OFTEN = false;  // whether a value may be put in more than once
    DEVICE int operator()(int a, int b) const { return a + b; }
  };
  struct Min {
    static constexpr bool OFTEN = true;
    template <class T> DEVICE T operator()(T a, T b) const { return b < a ? b : a; }
  };

  // What WIDTH lanes side by side have, put together.
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
      __syncthreads();
      mine = of_lanes<(F::OFTEN ? 32 : WARPS)>(of_warp[rank % WARPS], both);
      __syncthreads();  // of_warp is written again by the next call
    }
    return mine;
  }
};

// Threads that compute together what their teams need (play/play.cuh): WARPS_PER_CREW warps, or one larger team. A block's
// crews do not wait for each other: each has a barrier of its own, of the 15 that are besides __syncthreads'.
#ifndef WARPS_PER_CREW
#define WARPS_PER_CREW 1
#endif
struct Crew {
  static constexpr int SIZE = TEAM <= WARP_SIZE ? WARP_SIZE * WARPS_PER_CREW : TEAM;
  int rank, number;

  DEVICE void sync() const {
    if constexpr (SIZE > WARP_SIZE) asm volatile("bar.sync %0, %1;" : : "r"(number + 1), "n"(SIZE) : "memory");
    else __syncwarp();
  }
};
constexpr bool WEIGHTS_NEAR = true;  // whether a block keeps them in its memory

// A kernel may have been launched while the one before it in its stream still ran (cupydrive/executors/overlap.py): returns
// when that has ended and what it wrote is seen here. Before, nothing is written, and only what is older is read.
DEVICE void await_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the launch after this one come to the GPU as soon as all blocks of this one have called it, not when they end.
DEVICE void release_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The shared memory that this block asked for.
DEVICE void* block_memory() {
  extern __shared__ int4 near_memory[];
  return near_memory;
}

// The memory of a team that has its block alone, at an address that a compiler knows.
template <class Work> DEVICE Work& alone(Work*) { return *(Work*)block_memory(); }

// Keeps a word in a register, where the compiler would rather read a kernel's argument again, which takes 25 cycles.
DEVICE void hold(u32& word) { asm volatile("" : "+r"(word)); }

// The place of the lowest set bit, in [0, 64); `bits` is not 0.
DEVICE int lowest_bit(u64 bits) { return __ffsll((i64)bits) - 1; }

// A thread is one lane of its warp's vector already.
constexpr int SIDE_FLOATS = 1;

// Makes `word` the lesser of itself and `value`, whichever thread comes first.
DEVICE void atomic_min(u64* word, u64 value) { atomicMin(word, value); }
// Adds to a sum of whole numbers, which is the same in any order.
DEVICE void atomic_add(double* sum, double value) { atomicAdd(sum, value); }

// Loads what no kernel writes while this one runs: by the way of constants, past no store that it might have to wait for.
template <class T> DEVICE T load_constant(const T* from) { return __ldg(from); }

// Stores what this launch will not read again.
template <class T> DEVICE void store_last(T* to, T value) { __stcs(to, value); }

// The same for two numbers side by side, aligned to 8 bytes.
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
    // Some at once: no load waits for the store before it, which might have changed what is loaded. Pieces of 16 bytes from
    // shared memory are left to the compiler, which was faster (NOTES.md).
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
