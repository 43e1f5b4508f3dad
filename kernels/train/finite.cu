// finite.cu -- Find the first NaN or Inf in each of several arrays.
//
// `first` keeps the least (iteration << 40 | index) that was ever found, with index in [0, 2^40). All ones: none.
// Constants: ARRAYS, STRIDE (floats of one element of the launch: four on a GPU, loaded as 16 bytes, more on a CPU, as vectors).
#include "learn/exact/lanes.cuh"

struct Workspace {};
struct Finite {
  int begin[ARRAYS + 1];        // exclusive prefix sum of ceil(size[a] / STRIDE). begin[ARRAYS]: elements of the launch
  i64 size[ARRAYS];
  const float* values[ARRAYS];  // (size), aligned to 16 bytes
  i64* iteration;               // (1): iterations so far
  u64* first;                   // (ARRAYS)
};

DEVICE bool is_finite(float x) { return (math::bits(x) & 0x7f800000u) != 0x7f800000u; }

DEVICE void look(const Finite& call, const int e) {
  int array = 0;
  while (e >= call.begin[array + 1]) array += 1;
  const i64 start = (i64)(e - call.begin[array]) * STRIDE, size = call.size[array];
  const float* const values = call.values[array] + start;
  float own[STRIDE];
  if (start + STRIDE <= size) {  // mutant(swap <=): more work, same result
    UNROLL for (int k = 0; k < STRIDE; k += 4) {
      Four four;
      four.load(values + k);
      UNROLL for (int j = 0; j < 4; ++j) own[k + j] = four.of[j];
    }
  } else {
    // mutant(constant 2): any finite number stands for a missing one
    for (int k = 0; k < STRIDE; ++k) own[k] = start + k < size ? values[k] : 0.0f;
  }
  if constexpr (ALONE) {
    bool sound = true;
    for (int k = 0; k < STRIDE; ++k) sound = sound & is_finite(own[k]);
    if (sound) return;
  }
  UNROLL for (int k = STRIDE - 1; k >= 0; --k) {
    if (!is_finite(own[k])) atomic_min(call.first + array, (u64)*call.iteration << 40 | (u64)(start + k));
  }
}

#include "drive/launch.cuh"
KERNEL(look_for_nonfinite, Finite, call.begin[ARRAYS], look(call, e))
KERNEL(count_iteration, Finite, 1, *call.iteration += 1)
