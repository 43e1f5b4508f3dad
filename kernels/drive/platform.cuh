// platform.cuh -- one text for all compilers: a backend defines the few things in which they differ.
//
// A team of TEAM threads owns one environment. On a GPU its members are lanes of a warp (TEAM <= 32) or a whole
// block (TEAM > 32); on a CPU the team has one member, so `sync` costs nothing and `each` is a plain loop. A third
// build, for tests, runs the members as threads of the operating system (backend/team_threads.cuh).
//
// A backend, HIP say, is three more files of backend/: words, team and memory, launch. It defines
//   words       u8 u16 u32 i64 u64 size_type; OFFSET_OF(type, member)
//   functions   DEVICE (always inlined), INLINED (of a lambda), UNROLL, NO_UNROLL, UNROLL_TIMES(n), UNROLL_OWN (of FOR_OWN)
//               LOOP_OF_OWN(index, team, n): what `for (index : team.each(n))` of an environment's file becomes
//   registers   REGISTERS_HAVE_NO_INDEX: whether what lies in registers needs constant indices
//   Team        a Member with these collectives, which every member calls, the same number of times:
//                 sync()           what members wrote before, all members see after
//                 any(mine)        whether it holds for any member; ends with all that `sync` does
//                 sum(mine), min(mine), before(mine, &all)   of integers alone: their result is the same in any order
//                 add(array, i, value)   adds to array[i], which several members may do between two syncs; what it was
//                 in_step(num_envs), near_any(mine, near_lanes()), warp_any(mine)   for speed alone: true wherever `mine` is
//               on a GPU also WARP_SIZE and ALL_LANES_OF_WARP, a mask that is wide enough for it (of 64 lanes a u64)
//   Crew        threads that compute together what their teams need (play/play.cuh): SIZE, rank, sync(); WEIGHTS_NEAR: whether
//               a block's memory keeps what all of them read
//   memory      block_memory() on a GPU; alone(work): that of a team that has its block alone; hold(word), lowest_bit(bits),
//               atomic_min(word, value), atomic_add(sum, value) of whole numbers; store_last(to, value),
//               store_record(to, float, int); load_constant(from), of what no kernel writes
//               copy_words<WORDS>(team, to, from): by the whole team; both are aligned to the largest of 16, 8 and 4 bytes
//               that divides the size; store_words: the same to memory that this launch will not read again
//   launches    await_previous(): returns when what the launch before wrote is seen; release_next(): the next may come to the GPU
//   SIDE_FLOATS numbers that one thread computes side by side (neighbours.cuh)
//   KERNEL_OF_STEPS(name, Call, size, lanes, steps, piece, body): a kernel (launch.cuh)
//   KERNEL_AHEAD(name, Call, size, body): a kernel that calls await_previous() itself (launch.cuh)
//   KERNEL_OF_CREWS(name, Call, size, Block, load, body): one by crews, whose blocks' memory is a Block
#pragma once
#include "generated/sizes.cuh"

// If a member has so many agents at most, FOR_OWN makes copies instead of a loop, and what it keeps of them stays in registers
// (groups.cuh).
constexpr int FEW_OWN = 8;
// The driver reserves local memory for every thread that a GPU can hold at once, 270,000 on an H100. An environment of one thread
// keeps larger structs in shared memory.
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

// The length of an array that fills whole vectors.
// equal(swap -, swap /): more room, never read
constexpr int side(int n) { return (n + SIDE_FLOATS - 1) / SIDE_FLOATS * SIDE_FLOATS; }
