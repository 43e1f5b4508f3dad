// fused.cu -- Whether the compiled code of a CPU multiplies and adds in one instruction with one rounding.
//
// Otherwise a library function gives the same bits, and takes a hundred times as long.
#include "drive/platform.cuh"

struct Workspace {};

#if defined(__FMA__) || defined(__aarch64__) || defined(__CUDACC__)
constexpr int FUSED = 1;
#else
constexpr int FUSED = 0;
#endif

#include "drive/launch.cuh"
#ifndef __CUDACC__
extern "C" int fused() { return FUSED; }
#endif
