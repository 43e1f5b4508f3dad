// launch.cuh -- who runs what: KERNEL(name, Call, size, body) defines the kernel `name`, whose one argument is `Call call`.
// It runs `body` once for each `e` of [0, size), by one `team`, with a Workspace `*work` of its own.
//
// KERNEL_OF_STEPS runs it for steps [from, until): for all of [0, steps) on a GPU. On a CPU for at most `piece` of them, for
// [e, e + count), count <= lanes, and then for the next environments: rows of one step are far from those of the next, and
// those of the next environment beside them, so that few pages and no unfinished cache line are left behind.
#pragma once
#include "drive/faults.cuh"

#ifndef CACHE_BYTES
#define CACHE_BYTES 0  // of each environment's struct Cache (env.cuh)
#endif

#ifdef __CUDACC__
// A kernel may have been launched while the one before it in its stream still ran (cupydrive/executors/overlap.py): returns
// when that has ended and what it wrote is seen here. Nothing is read or written before.
DEVICE void await_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Block: ENVS_PER_BLOCK teams of TEAM threads. The grid covers the whole count.
#define KERNEL_OF_STEPS(name, Call, size, lanes, steps, piece, body)                                                  \
  extern "C" __global__ void __launch_bounds__(TEAM * ENVS_PER_BLOCK) name(const __grid_constant__ Call call) {       \
    const int slot = threadIdx.x / TEAM; /* [0, ENVS_PER_BLOCK) */                                                   \
    const Team team{(int)(threadIdx.x % TEAM)};                                                                      \
    Workspace mine;                                                                                                  \
    Workspace* const work = TEAM == 1 ? &mine : (Workspace*)block_memory() + slot;                                   \
    constexpr int count = 1, from = 0;                                                                               \
    const int until = (steps);                                                                                       \
    static_assert((lanes) == 1, "a team on a GPU has one environment at a time");                                     \
    (void)team; (void)work; (void)count; (void)from; (void)until; /* not every kernel needs them */                   \
    await_previous();                                                                                                \
    const int e = blockIdx.x * ENVS_PER_BLOCK + slot;                                                                \
    if (e < (size)) { body; }                                                                                        \
  }
#ifndef BLOCK_BYTES
#define BLOCK_BYTES (TEAM > 1 ? sizeof(Workspace) * ENVS_PER_BLOCK : 0)
#endif
extern "C" __device__ const int block_bytes = BLOCK_BYTES;  // of shared memory that a block asks for
extern "C" __device__ const int cache_bytes = CACHE_BYTES;

#else
extern "C" int cache_bytes() { return CACHE_BYTES; }

// As CuPy's -ftz=true does on the GPU: denormal inputs and results are 0. Restored on leaving, since NumPy and torch
// run in the same thread.
struct FlushDenormals {
#if defined(__x86_64__) || defined(__i386__)
  u32 before;
  FlushDenormals() { before = __builtin_ia32_stmxcsr(); __builtin_ia32_ldmxcsr(before | 0x8040u); }
  ~FlushDenormals() { __builtin_ia32_ldmxcsr(before); }
#elif defined(__aarch64__)
  u64 before;
  FlushDenormals() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | (1ull << 24)));
  }
  ~FlushDenormals() { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }
#else
#error "cupydrive: no known way to flush denormals on this processor"
#endif
};

#ifdef TEAM_THREADS
// [first, last) one after the other, each by TEAM threads.
struct TeamCall { const void* call; int first, last, rank; };
#define KERNEL_OF_STEPS(name, Call, size, lanes, steps, piece, body)                         \
  static_assert((lanes) == 1, "a team of threads has one environment at a time");            \
  static Workspace name##_work;                                                              \
  static void* name##_member(void* argument) {                                               \
    const TeamCall& member = *(TeamCall*)argument;                                           \
    const FlushDenormals flush;                                                              \
    const Call& call = *(const Call*)member.call;                                            \
    const Team team{member.rank};                                                            \
    Workspace* const work = &name##_work;                                                    \
    constexpr int count = 1, from = 0;                                                       \
    const int until = (steps);                                                               \
    (void)team; (void)work; (void)count; (void)from; (void)until;                            \
    rendezvous.wait(member.rank);                                                            \
    for (int e = member.first; e < member.last; ++e) { body; }                               \
    rendezvous.finish(member.rank);                                                          \
    return nullptr;                                                                          \
  }                                                                                          \
  extern "C" int name(const Call* call, int first, int last) {                               \
    pthread_t threads[TEAM];                                                                 \
    TeamCall calls[TEAM];                                                                    \
    rendezvous.open((u32)first + 1u);                                                        \
    for (int i = 0; i < TEAM; ++i) {                                                         \
      calls[i] = {call, first, last, i};                                                     \
      if (pthread_create(&threads[i], nullptr, name##_member, &calls[i]) != 0) return -1;    \
    }                                                                                        \
    sem_post(&rendezvous.turn[rendezvous.order[0]]);                                         \
    for (int i = 0; i < TEAM; ++i) pthread_join(threads[i], nullptr);                        \
    return rendezvous.uneven ? 1 : 0;                                                        \
  }
#else
// [first, last), in the calling thread; what a block keeps from piece to piece stays in the processor's cache.
constexpr int BLOCK_ENVS = 4096;
#define KERNEL_OF_STEPS(name, Call, size, lanes, steps, piece, body)      \
  static void name##_range(const Call& call, int first, int last) {       \
    const Team team{0};                                                   \
    for (int end; first < last; first = end) {                            \
      end = last - first < BLOCK_ENVS ? last : first + BLOCK_ENVS;        \
      for (int from = 0, until; from < (steps); from = until) {           \
        until = (steps) - from < (piece) ? (steps) : from + (piece);      \
        for (int e = first; e < end; e += (lanes)) {                      \
          const int count = end - e < (lanes) ? end - e : (lanes);        \
          (void)team; (void)count;                                        \
          Workspace mine, *const work = &mine;                            \
          (void)work;                                                     \
          GUARDED(e, body)                                                \
        }                                                                 \
      }                                                                   \
    }                                                                     \
  }                                                                       \
  extern "C" int name(const Call* call, int first, int last) {            \
    const FlushDenormals flush;                                           \
    name##_range(*call, first, last);                                     \
    return 0;                                                             \
  }
#ifdef DEBUG_BOUNDS
extern "C" const Fault* last_fault() { return &fault; }
#endif
#endif
#endif

#define KERNEL(name, Call, size, body) KERNEL_OF_STEPS(name, Call, size, 1, 1, 1, body)
