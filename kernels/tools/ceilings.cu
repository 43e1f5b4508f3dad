// ceilings.cu -- what the device does at most: fills, copies, and multiplications with additions that wait for nothing.
#include "drive/math.cuh"

// Independent chains of LINKS dependent operations. On a GPU other threads fill the time that a chain waits; on a CPU only
// other chains do, four vectors of 16 at the least.
#ifdef __CUDACC__
constexpr int CHAINS = 16;
#else
constexpr int CHAINS = 64;
#endif
constexpr int LINKS = 64;
constexpr int EACH = 8;  // accesses of 16 bytes by one element, `count` of them apart

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
  if (sum == -1.0f) call.to[e].x = sum;  // never: it only keeps the work
}

#include "drive/launch.cuh"
KERNEL(fill, Ceiling, call.count, fill_some(call, e))
KERNEL(copy, Ceiling, call.count, copy_some(call, e))
KERNEL(multiply_add, Ceiling, call.count, multiply_and_add(call, e))
