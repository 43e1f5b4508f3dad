// finite.cu -- finds the first number of an array that is infinite or not a number.
//
// `first` keeps the least of (iteration << 40 | index) that was ever found: index in [0, 2^40), all ones: none.
#include "drive/math.cuh"

constexpr int STRIDE = 4;  // numbers per element of the launch: one 16-byte read

struct Workspace {};
struct Finite {
  int elements;           // ceil(size / STRIDE)
  i64 size;
  const float* values;    // (size), aligned to 16 bytes
  const i64* iteration;   // (1)
  u64* first;             // (1)
};

DEVICE bool is_finite(float x) { return (math::bits(x) & 0x7f800000u) != 0x7f800000u; }

DEVICE void look(const Finite& call, const int e) {
  const i64 start = (i64)e * STRIDE;
  float four[STRIDE] = {};
  if (start + STRIDE <= call.size) {
    for (int k = 0; k < STRIDE; ++k) four[k] = call.values[start + k];
  } else {
    for (int k = 0; start + k < call.size; ++k) four[k] = call.values[start + k];
  }
  for (int k = STRIDE - 1; k >= 0; --k) {
    if (!is_finite(four[k])) atomic_min(call.first, (u64)*call.iteration << 40 | (u64)(start + k));
  }
}

#include "drive/launch.cuh"
KERNEL(look_for_nonfinite, Finite, call.elements, look(call, e))
