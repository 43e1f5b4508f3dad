// cuda_launch.cuh -- Kernels of an NVIDIA GPU: blocks of ENVS_PER_BLOCK teams of TEAM threads, enough to cover all elements.
#pragma once

// A team of one thread keeps its Workspace in registers or local memory. A large Workspace is in shared memory.
constexpr bool WORK_SHARED = TEAM > 1 || sizeof(Workspace) > MOST_LOCAL_BYTES;
template <bool SHARED> struct LocalWork {
  Workspace work;
  DEVICE Workspace* address() { return &work; }
};
template <> struct LocalWork<true> {
  DEVICE Workspace* address() { return nullptr; }
};
#ifndef OBS_BYTES
#define OBS_BYTES 0  // shared memory of observations, before the workspaces
#endif
#ifndef BLOCK_BYTES
#define BLOCK_BYTES (OBS_BYTES + (WORK_SHARED ? sizeof(Workspace) * ENVS_PER_BLOCK : 0))
#endif
extern "C" __device__ const int block_bytes = BLOCK_BYTES;  // shared memory of a block
extern "C" __device__ const int cache_bytes = CACHE_BYTES;

// AHEAD: the body itself waits for the previous launch.
template <bool AHEAD, class Body> DEVICE void run(const int size, const int steps, Body body) {
  const int slot = threadIdx.x / TEAM;  // [0, ENVS_PER_BLOCK)
  LocalWork<WORK_SHARED> local;
  Workspace* const work = WORK_SHARED ? (Workspace*)((char*)block_memory() + OBS_BYTES) + slot : local.address();
  if constexpr (!AHEAD) await_previous();
  const int e = blockIdx.x * ENVS_PER_BLOCK + slot;
  if (e < size) body(Team{(int)(threadIdx.x % TEAM)}, work, e, 1, 0, steps);
}

// Number of blocks of a large team for which an SM should have registers: as many as fit into shared memory, with at most
// BUSY_THREADS threads. Without this bound the compiler guesses. It has spilled 200 bytes per thread for a block that did not fit.
#if TEAM > 32 && defined(BUSY_THREADS)
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
constexpr int PROCESSOR_BYTES = 228 * 1024;  // shared memory of an SM
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
constexpr int PROCESSOR_BYTES = 164 * 1024;
#else
constexpr int PROCESSOR_BYTES = 100 * 1024;
#endif
constexpr int BLOCKS_WITH_ROOM = PROCESSOR_BYTES / ((int)BLOCK_BYTES + 1024), BUSY_BLOCKS = BUSY_THREADS / TEAM;
constexpr int BLOCKS = BLOCKS_WITH_ROOM < BUSY_BLOCKS ? BLOCKS_WITH_ROOM : BUSY_BLOCKS;
#define LAUNCH_BOUNDS __launch_bounds__(TEAM, BLOCKS > 1 ? BLOCKS : 1)
#else
#define LAUNCH_BOUNDS __launch_bounds__(TEAM * ENVS_PER_BLOCK)
#endif

// MANY_CALLS: a launch serves several members of a population. Each has a row of blocks (blockIdx.y), and its arguments are in
// global memory. CALL_BYTES exports the size of a kernel's arguments to the host.
#ifdef MANY_CALLS
#define ARGUMENT(Call) const Call* const __restrict__ calls
#define TAKE_ARGUMENT(Call) const Call& call = calls[blockIdx.y];
#define CALL_BYTES(name, Call) extern "C" __device__ const int name##_bytes = sizeof(Call);
#else
#define ARGUMENT(Call) const __grid_constant__ Call call
#define TAKE_ARGUMENT(Call)
#define CALL_BYTES(name, Call)
#endif

#define KERNEL_OF_STEPS(name, Call, size, lanes, steps, piece, body)                                            \
  CALL_BYTES(name, Call)                                                                                        \
  extern "C" __global__ void LAUNCH_BOUNDS name(ARGUMENT(Call)) {                                               \
    TAKE_ARGUMENT(Call)                                                                                         \
    static_assert((lanes) == 1, "a team on a GPU has one environment at a time");                               \
    run<false>(size, steps, BODY(body));                                                                        \
  }

// A kernel whose body calls await_previous() in every thread, before it reads data that the previous launch writes.
#define KERNEL_AHEAD(name, Call, size, body)                                                                    \
  CALL_BYTES(name, Call)                                                                                        \
  extern "C" __global__ void LAUNCH_BOUNDS name(ARGUMENT(Call)) {                                               \
    TAKE_ARGUMENT(Call)                                                                                         \
    static_assert(ENVS_PER_BLOCK == 1, "a thread that has no element would not wait");                          \
    run<true>(size, 1, BODY(body));                                                                             \
  }

// Blocks of WARP_SETS warp sets with ENVS_PER_BLOCK elements each, of which `size` is a multiple. First all threads of a block run
// `load` in its memory, a Block. After a barrier, which makes this memory visible to all warp sets, warp set `number` of the block
// runs `body` for elements [first, first + ENVS_PER_BLOCK).
#define KERNEL_OF_WARP_SETS(name, Call, size, Block, load, body)                                                     \
  CALL_BYTES(name, Call)                                                                                             \
  extern "C" __global__ void __launch_bounds__(WarpSet::SIZE * WARP_SETS) name(ARGUMENT(Call)) {                     \
    TAKE_ARGUMENT(Call)                                                                                              \
    const int thread = threadIdx.x, number = thread / WarpSet::SIZE, first = (blockIdx.x * WARP_SETS + number) * ENVS_PER_BLOCK; \
    constexpr int threads = WarpSet::SIZE * WARP_SETS;                                                               \
    Block& block = *(Block*)block_memory();                                                                          \
    const WarpSet warps{thread % WarpSet::SIZE, number};                                                             \
    await_previous();                                                                                                \
    load;                                                                                                            \
    __syncthreads();  /* `load` has written the block's memory before warp sets read it */                           \
    if (first < (size)) body;                                                                                        \
  }
