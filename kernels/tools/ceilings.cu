// ceilings.cu -- Upper limits of the device: fills, copies, and independent fused multiply-adds.
#include "drive/math.cuh"

// Independent chains of LINKS dependent operations. On a GPU other threads hide the latency of a chain. On a CPU only other chains
// do, at least four vectors of 16.
#ifdef __CUDACC__
constexpr int CHAINS = 16;
#else
constexpr int CHAINS = 64;
#endif
constexpr int LINKS = 64;
constexpr int EACH = 8;  // accesses of 16 bytes per element, at a distance of `count`

struct Workspace {};
struct alignas(16) Four { float x, y, z, w; };
struct Ceiling {
  int count;         // elements
  const Four* from;  // (EACH, count)
  Four* to;          // (EACH, count)
};

DEVICE void fill_some(const Ceiling& call, const int e) {
  for (int k = 0; k < EACH; ++k) call.to[(size_type)k * call.count + e] = Four{1.0f, 2.0f, 3.0f, 4.0f};
}

DEVICE void copy_some(const Ceiling& call, const int e) {
  Four four[EACH];
  for (int k = 0; k < EACH; ++k) four[k] = call.from[(size_type)k * call.count + e];
  for (int k = 0; k < EACH; ++k) call.to[(size_type)k * call.count + e] = four[k];
}

// 2 * CHAINS * LINKS operations in float32.
DEVICE void multiply_and_add(const Ceiling& call, const int e) {
  float x[CHAINS];
  for (int k = 0; k < CHAINS; ++k) x[k] = (float)(e + k);
#ifdef __CUDACC__
#pragma unroll 8
#endif
  for (int i = 0; i < LINKS; ++i) {
    UNROLL for (int k = 0; k < CHAINS; ++k) x[k] = math::fma(x[k], 0.999f, 0.25f);
  }
  float sum = 0.0f;
  for (int k = 0; k < CHAINS; ++k) sum += x[k];
  if (sum == -1.0f) call.to[e].x = sum;  // never true: keeps the compiler from removing the work
}

#include "drive/launch.cuh"
KERNEL(fill, Ceiling, call.count, fill_some(call, e))
KERNEL(copy, Ceiling, call.count, copy_some(call, e))
KERNEL(multiply_add, Ceiling, call.count, multiply_and_add(call, e))
