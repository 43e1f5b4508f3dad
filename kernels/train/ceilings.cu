// ceilings.cu -- what the device does at most: fills, copies, and multiplications with additions that wait for nothing.
#include "drive/math.cuh"

constexpr int CHAINS = 16, LINKS = 64;  // independent chains of dependent operations

struct Workspace {};
struct alignas(16) Four { float x, y, z, w; };
struct Ceiling {
  int count;         // elements of 16 bytes
  const Four* from;  // (count)
  Four* to;          // (count)
};

DEVICE void fill_one(const Ceiling& call, const int e) { call.to[e] = Four{1.0f, 2.0f, 3.0f, 4.0f}; }
DEVICE void copy_one(const Ceiling& call, const int e) { call.to[e] = call.from[e]; }

// 2 * CHAINS * LINKS operations in float32.
DEVICE void multiply_and_add(const Ceiling& call, const int e) {
  float x[CHAINS];
  for (int k = 0; k < CHAINS; ++k) x[k] = (float)(e + k);
#ifdef __CUDACC__
#pragma unroll 8
#endif
  for (int i = 0; i < LINKS; ++i) {
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int k = 0; k < CHAINS; ++k) x[k] = math::fma(x[k], 0.999f, 0.25f);
  }
  float sum = 0.0f;
  for (int k = 0; k < CHAINS; ++k) sum += x[k];
  if (sum == -1.0f) call.to[e].x = sum;  // never: it only keeps the work
}

#include "drive/launch.cuh"
KERNEL(fill, Ceiling, call.count, fill_one(call, e))
KERNEL(copy, Ceiling, call.count, copy_one(call, e))
KERNEL(multiply_add, Ceiling, call.count, multiply_and_add(call, e))
