// launch.cuh -- Definition of kernels. KERNEL(name, Call, size, body) defines the kernel `name`, whose only argument is `Call
// call`. It runs `body` once for each `e` of [0, size), by one `team`, with a Workspace `*work` of its own. In all kernels, `call`
// is the struct of kernel arguments, and `e` is the index of the element that a team computes, such as an environment, a tile or a
// row.
//
// KERNEL_OF_STEPS runs the body for steps [from, until). On a GPU these are all of [0, steps). On a CPU these are at most `piece`
// steps, for elements [e, e + count), count <= lanes, and then for the next elements. The row of an environment is adjacent to that
// of the next environment in the same step, but far from its own row in the next step. This order therefore writes whole cache
// lines and touches few pages at a time.
//
// KERNEL_AHEAD is a KERNEL whose body may begin while the previous launch still runs (programmatic dependent launch). The body
// calls await_previous() before it writes anything, and before it reads data that a launch that may still run writes.
#pragma once
#include "drive/faults.cuh"

#ifndef CACHE_BYTES
#define CACHE_BYTES 0  // of each environment's struct Cache (env.cuh)
#endif

// A kernel's body as a function, which a backend's `run` calls.
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
