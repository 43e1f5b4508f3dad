// platform.cuh -- One source for all compilers: a backend defines the few points in which they differ.
//
// A thread team of TEAM threads owns one environment. On a GPU its threads are lanes of a warp (TEAM <= 32) or a whole block (TEAM
// > 32). On a CPU the team has one thread, so that `sync` costs nothing and `each` is a plain loop. A third build, for tests, runs
// the team as threads of the operating system (backend/team_threads.cuh).
//
// Another backend, such as HIP, needs three more files in backend/: types, team and memory, launch. It defines
//   types       u8 u16 u32 i64 u64 size_type, OFFSET_OF(type, member)
//   functions   DEVICE (always inlined), INLINED (of a lambda), UNROLL, NO_UNROLL, UNROLL_TIMES(n), UNROLL_OWN (of FOR_OWN)
//               LOOP_OF_OWN(index, team, n): replacement of `for (index : team.each(n))` in an environment's file
//   registers   REGISTERS_HAVE_NO_INDEX: whether arrays in registers need constant indices
//   Team        a Member with these collectives, which every thread calls the same number of times:
//                 sync()           writes of all threads before it are visible to all threads after it
//                 any(mine)        whether `mine` holds for any thread. Includes a sync
//                 sum(mine), min(mine), before(mine, &all)   of integers only: their result is the same in any order
//                 add(array, i, value)   adds to array[i], which several threads may do between two syncs. Returns the old value
//                 sector_any(mine, sector_lanes()), warp_any(mine)   votes, only for speed: true if `mine` is, but also if it holds
//                                  for a lane of the same memory sector, or of the warp. A backend may return `mine`
//                 in_step(num_envs)   a barrier of the block, only for speed. A backend may do nothing
//               on a GPU also WARP_SIZE and ALL_LANES_OF_WARP, a mask that is wide enough for it (for 64 lanes a u64)
//   WarpSet     the warps of a block that step their own environments and compute the policies for them (play/play.cuh): SIZE,
//               rank, sync(). WEIGHTS_IN_SHARED: whether a block keeps the weights in shared memory
//   memory      block_memory(), the shared memory of a block, on a GPU. alone(work): the same as the Workspace of a block's only
//               team. hold(word): keeps it in a register. lowest_bit(bits): its index. atomic_min(word, value) and
//               atomic_add(sum, value), both of integers. store_last(to, value): a streaming store
//               (__stcs). store_record(to, float, int), 8 bytes at once. load_constant(from), a read-only load (__ldg)
//               copy_words<WORDS>(team, to, from): by the whole team. Both are aligned to the largest of 16, 8 and 4 bytes
//               that divides the size. store_words: the same by streaming stores
//   launches    programmatic dependent launch. await_previous(): waits until the writes of the previous launch are visible.
//               release_next(): the next may start
//   SIDE_FLOATS floats that one thread computes in one vector (neighbors.cuh)
//   KERNEL_OF_STEPS(name, Call, size, lanes, steps, piece, body): a kernel (launch.cuh)
//   KERNEL_AHEAD(name, Call, size, body): a kernel that calls await_previous() itself (launch.cuh)
//   KERNEL_OF_WARP_SETS(name, Call, size, Block, load, body): a kernel of warp sets, whose blocks' memory is a Block
// Notes `mutant(KIND)` name equivalent mutants, with a reason, for the mutation tester (CONTRIBUTING.md).
#pragma once
#include "generated/sizes.cuh"

// If a thread has at most this many agents, FOR_OWN is unrolled instead of a loop, and the data of these agents stay in registers
// (groups.cuh).
constexpr int FEW_OWN = 8;
// The driver reserves local memory for every thread that a GPU can hold at once, 270,000 on an H100. An environment of one thread
// therefore keeps larger structs in shared memory.
constexpr int MOST_LOCAL_BYTES = 4096;
#ifdef __CUDACC__
#include "drive/backend/cuda.cuh"
#else
#include "drive/backend/cpu.cuh"
#endif
#include "drive/indices.cuh"
#ifdef __CUDACC__
#include "drive/backend/cuda_team.cuh"
#else
#include "drive/backend/cpu_team.cuh"
#endif

// Length of an array of n numbers, rounded up to whole vectors.
// mutant(swap -, swap /): more room, never read
constexpr int side(int n) { return (n + SIDE_FLOATS - 1) / SIDE_FLOATS * SIDE_FLOATS; }
