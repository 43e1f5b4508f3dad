// launch.cuh -- who runs what: KERNEL(name, Call, size, body) defines the kernel `name`, whose one argument is `Call call`.
// It runs `body` once for each `e` of [0, size), by one `team`, with a Workspace `*work` of its own.
//
// KERNEL_OF_STEPS runs it for steps [from, until): for all of [0, steps) on a GPU. On a CPU for at most `piece` of them, for
// [e, e + count), count <= lanes, and then for the next environments: rows of one step are far from those of the next, and
// those of the next environment beside them, so that few pages and no unfinished cache line are left behind.
//
// KERNEL_AHEAD is a KERNEL whose body may begin while the launch before it still runs, and calls await_previous() before it
// reads what that one, or one that may still run with it, writes, and before it writes anything.
#pragma once
#include "drive/faults.cuh"

#ifndef CACHE_BYTES
#define CACHE_BYTES 0  // of each environment's struct Cache (env.cuh)
#endif

// A kernel's text as a function, which a backend's `run` calls.
#define BODY(text)                                                                                                            \
  [&](const Team team, Workspace* const work, const int e, const int count, const int from, const int until) INLINED {        \
    (void)team; (void)work; (void)count; (void)from; (void)until; /* not every kernel needs them */                           \
    text;                                                                                                                     \
  }

#ifdef __CUDACC__
#include "drive/backend/cuda_launch.cuh"
#else
#include "drive/backend/cpu_launch.cuh"
#endif

#define KERNEL(name, Call, size, body) KERNEL_OF_STEPS(name, Call, size, 1, 1, 1, body)
