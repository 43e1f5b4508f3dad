// platform.cuh -- one text for CUDA (NVRTC) and C++ (g++, clang++, zig c++): words, qualifiers, and the team.
//
// A team of TEAM threads owns one environment. On a GPU its members are lanes of a warp (TEAM <= 32) or a whole
// block (TEAM > 32); on a CPU the team has one member, so `sync` costs nothing and `each` is a plain loop. A third
// build, for tests, runs the members as threads of the operating system (team_threads.cuh).
#pragma once
#include "generated/sizes.cuh"

#ifdef __CUDACC__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef u64 size_type;
#define DEVICE __device__ __forceinline__
#define INLINED  // of a lambda; NVRTC has inlined them all
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define PRAGMA(text) _Pragma(#text)
#define UNROLL_TIMES(n) PRAGMA(unroll (n))
#define OFFSET_OF(type, member) ((u64)__INTADDR__(&((type*)0)->member))  // NVRTC 13.0 has no __builtin_offsetof
#else
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;
typedef size_t size_type;
#ifdef COUNT_BRANCHES  // each function once, and gcov's counts written on demand (cupydrive/checks/branches.py)
#define DEVICE inline
#define INLINED
extern "C" void __gcov_dump();
extern "C" void write_branches() { __gcov_dump(); }
#else
#define DEVICE inline __attribute__((always_inline))
#define INLINED __attribute__((always_inline))
#endif
#define UNROLL
#define NO_UNROLL
#define UNROLL_TIMES(n)
#define OFFSET_OF(type, member) __builtin_offsetof(type, member)
#endif

#ifdef COUNT_OPERATIONS
#include "drive/counting.cuh"
#endif

// The indices of [0, n) that belong to one member: rank, rank + TEAM, ... Made for a range-based for.
struct Each {
  int first, last;
  struct Index {
    int i;
    DEVICE int operator*() const { return i; }
    DEVICE void operator++() { i += TEAM; }
    DEVICE bool operator!=(const Index& end) const { return i < end.i; }
  };
  DEVICE Index begin() const { return {first}; }
  DEVICE Index end() const { return {last}; }
};

// The same for a constant n: the k-th own index is i. A loop of few is none, which spares the members of a warp from waiting
// for each other at its end.
constexpr int own_count(const int n) { return (n + TEAM - 1) / TEAM; }
constexpr int FEW_OWN = 8;  // of which registers hold what a member keeps (groups.cuh)
#ifdef COUNT_BRANCHES  // a loop's end is a branch that goes both ways
#define FOR_OWN(team, k, i, n) for (int k = 0, i = (team).rank; i < (n); ++k, i += TEAM)
#else
#define FOR_OWN(team, k, i, n)                                   \
  UNROLL_TIMES(own_count(n) <= FEW_OWN ? own_count(n) : 4)       \
  for (int k = 0; k < own_count(n); ++k)                         \
    if (const int i = (team).rank + k * TEAM; i < (n))
#endif

// of[i], where a team of one may keep `of` in registers, which have no index.
constexpr int MOST_PICKED = 8;
template <class T, int N> DEVICE T pick(const T (&of)[N], int i) {
#ifdef __CUDACC__
  if constexpr (TEAM == 1 && N <= MOST_PICKED) {
    T picked = of[0];
    UNROLL for (int k = 1; k < N; ++k) picked = k == i ? of[k] : picked;
    return picked;
  }
#endif
  return of[i];
}
// Likewise of[i] = value.
template <class T, int N> DEVICE void put(T (&of)[N], int i, T value) {
#ifdef __CUDACC__
  if constexpr (TEAM == 1 && N <= MOST_PICKED) {
    UNROLL for (int k = 0; k < N; ++k) of[k] = k == i ? value : of[k];
    return;
  }
#endif
  of[i] = value;
}

#ifdef TEAM_THREADS
#include "drive/team_threads.cuh"
#else

// Collectives (sync, any, sum, min, before) are called by every member, the same number of times. Reductions take integers
// only: their result does not depend on the order of the members, so it is the same for every team size.
struct Team {
  int rank;  // [0, TEAM)

  DEVICE Each each(int n) const { return {rank, n}; }
  // The same, and indices of n or more, so that all members have equally many.
  DEVICE Each all(int n) const { return {rank, (n + TEAM - 1) / TEAM * TEAM}; }
  DEVICE bool leader() const { return TEAM == 1 || rank == 0; }

#ifdef __CUDACC__
  // The lanes of a warp; those without an environment have left the kernel and are waited for no more. A constant: a mask
  // that the compiler does not know costs thirty cycles.
  static constexpr u32 WARP = TEAM * ENVS_PER_BLOCK < 32 ? (1u << TEAM * ENVS_PER_BLOCK % 32) - 1u : 0xffffffffu;

  // The lanes of this team within its warp; teams of more than 32 use whole warps.
  DEVICE u32 lanes() const {
#if TEAM >= 32
    return 0xffffffffu;
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
  // Whether `mine` holds for this environment, or (teams of one) for another whose rows lie in the same 32 bytes: records of
  // 8 bytes if it has one agent, else rows of 4.
  // Memory is written in pieces of 32 bytes: rows that few environments have something to say about are written by all
  // of a piece, since a part of a piece costs reading the rest first.
  DEVICE bool near_any(bool mine) const {
    if constexpr (TEAM > 1) return mine;
    constexpr u32 LANES = ONE_AGENT ? 4 : 8;
    return (__ballot_sync(WARP, mine) >> (threadIdx.x & (32u - LANES)) & ((1u << LANES) - 1u)) != 0;
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
  template <int N> DEVICE int add(int (&words)[N], int i, int value) const {
    if constexpr (TEAM > 1) return atomicAdd(&words[i], value);
    const int was = pick(words, i);
    if constexpr (N > MOST_PICKED) words[i] += value;
    else UNROLL for (int k = 0; k < N; ++k) words[k] += k == i ? value : 0;
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
    if constexpr (AT_ONCE && F::OFTEN) return __reduce_min_sync(0xffffffffu, mine);
    else if constexpr (AT_ONCE) return __reduce_add_sync(0xffffffffu, mine);
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
#else
  DEVICE void sync() const {}
  DEVICE void in_step(int) const {}
  DEVICE bool any(bool mine) const { return mine; }
  DEVICE bool near_any(bool mine) const { return mine; }
  DEVICE bool warp_any(bool mine) const { return mine; }
  DEVICE int sum(int mine) const { return mine; }
  template <class T> DEVICE T min(T mine) const { return mine; }
  DEVICE int before(int mine, int* all) const { *all = mine; return 0; }
  template <int N> DEVICE int add(int (&words)[N], int i, int value) const { return (words[i] += value) - value; }
#endif
};
#endif

#ifdef __CUDACC__
// The shared memory that this block asked for.
DEVICE void* block_memory() {
  extern __shared__ int4 near_memory[];
  return near_memory;
}
#endif

template <bool FIRST, class A, class B> struct Choose { typedef A type; };
template <class A, class B> struct Choose<false, A, B> { typedef B type; };

// Keeps a word in a register, where the compiler would rather read a kernel's argument again, which takes 25 cycles.
DEVICE void hold(u32& word) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(word));
#else
  (void)word;
#endif
}

// The place of the lowest set bit, in [0, 64); `bits` is not 0.
DEVICE int lowest_bit(u64 bits) {
#ifdef __CUDACC__
  return __ffsll((i64)bits) - 1;
#else
  return __builtin_ctzll(bits);
#endif
}

// As many floats as a vector register of a CPU holds, side by side, and arrays that fill whole ones.
#if defined(__CUDACC__) || defined(COUNT_OPERATIONS)
constexpr int SIDE_FLOATS = 1;
#else
#ifdef __AVX512F__
constexpr int SIDE_FLOATS = 16;
#else
constexpr int SIDE_FLOATS = 8;
#endif
typedef float floats __attribute__((vector_size(4 * SIDE_FLOATS)));
typedef u32 u32s __attribute__((vector_size(4 * SIDE_FLOATS)));
#endif
constexpr int side(int n) { return (n + SIDE_FLOATS - 1) / SIDE_FLOATS * SIDE_FLOATS; }

// Makes `word` the lesser of itself and `value`, whichever thread comes first.
DEVICE void atomic_min(u64* word, u64 value) {
#ifdef __CUDACC__
  atomicMin(word, value);
#else
  u64 before = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (value < before && !__atomic_compare_exchange_n(word, &before, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
#endif
}

// Stores what this launch will not read again.
template <class T> DEVICE void store_last(T* to, T value) {
#ifdef __CUDACC__
  __stcs(to, value);
#else
  *to = value;
#endif
}

// The same for two numbers side by side, aligned to 8 bytes.
DEVICE void store_record(float* to, float first, int second) {
#ifdef __CUDACC__
  __stcs((int2*)to, make_int2(__float_as_int(first), second));
#else
  to[0] = first;
  memcpy(to + 1, &second, 4);
#endif
}

#ifdef __CUDACC__
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
#endif

// Copies `WORDS` 4-byte words by the whole team, in the widest accesses that the size allows. Both addresses are
// aligned to the largest of 16, 8 and 4 bytes that divides the size.
template <int WORDS> DEVICE void copy_words(const Team team, void* to, const void* from) {
#ifdef __CUDACC__
  copy_widest<false, WORDS>(team, to, from);
#elif defined(TEAM_THREADS)
  for (int i : team.each(WORDS)) memcpy((char*)to + 4 * i, (const char*)from + 4 * i, 4);
#else
  (void)team;
  if (to != from) memcpy(to, from, 4 * (size_type)WORDS);
#endif
}

// The same, from near memory to global memory that this launch will not read again.
template <int WORDS> DEVICE void store_words(const Team team, void* to, const void* from) {
#ifdef __CUDACC__
  copy_widest<true, WORDS>(team, to, from);
#else
  copy_words<WORDS>(team, to, from);
#endif
}
