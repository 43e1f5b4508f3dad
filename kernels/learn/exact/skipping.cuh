// skipping.cuh -- Products of a first layer whose input is mostly 0, such as boolean observations. A team of one CPU thread skips
// the zeros. fma(0, w, s) is s if w is finite, except for the sign of a zero, so that the bits are those of multiply.cuh.
#pragma once
#include "learn/exact/multiply.cuh"

DEVICE bool any_lane(const u32s words) {
  u32 any = 0;
  for (int j = 0; j < SIDE_FLOATS; ++j) any |= words[j];
  return any != 0;
}
DEVICE floats load_side(const float* from) {
  Lanes<SIDE_FLOATS> side;
  side.load(from);
  return side.of[0];
}
// Return whether any word that visit(bits of SIDE_FLOATS numbers) returns is not 0, for `count` numbers, a multiple of PAD.
template <class Visit> DEVICE bool any_number(const float* at, const int count, Visit visit) {
  u32s found{};
  for (int i = 0; i < count; i += SIDE_FLOATS) found |= visit((u32s)load_side(at + i));
  return any_lane(found);
}
DEVICE bool all_finite(const float* at, const int count) {
  return !any_number(at, count, [](const u32s bits) INLINED { return (u32s)((bits & 0x7f800000u) == 0x7f800000u); });
}

// For each column, the set of rows (at most 32) in which it is not 0, as one bit per row.
template <int COLUMNS> struct Marks {
  alignas(64) u32 of[padded(COLUMNS)];
  bool few;  // nonzero numbers are so few that skipping the others pays

  DEVICE void find_zeros(const float* rows, const int count) {
    int found = 0;
    for (int k = 0; k < padded(COLUMNS); k += SIDE_FLOATS) {
      u32s marks{};
      for (int m = 0; m < count; ++m) marks |= (u32s)(load_side(rows + m * padded(COLUMNS) + k) != 0.0f) & (1u << m);
      __builtin_memcpy(of + k, &marks, sizeof(marks));
    }
    for (int k = 0; k < COLUMNS; ++k) found += __builtin_popcount(of[k]);
    few = found <= count * COLUMNS / 4;  // mutant(swap <=, swap *, swap /, constant): speed only
  }
  // Call visit(row) for the rows that are not 0 in column k, in ascending order.
  template <class Visit> DEVICE void each(const int k, Visit visit) const {
    for (u32 left = of[k]; left != 0; left &= left - 1) visit(__builtin_ctz(left));
  }
};

// Outputs that one pass over the entries computes.
template <class Here>
// mutant(swap ==, constant 3): same sums
constexpr int OUTPUTS_AT_ONCE = Here::OUT_PAD % (4 * SIDE_FLOATS) == 0 ? 4 * SIDE_FLOATS : PAD;

// Compute the sums of a layer's outputs. Returns false if multiply() must compute them. `weights`: (IN, OUT_PAD), then biases.
template <class Here, class Marks>
DEVICE bool sum_skipping(const Marks& marks, const float* inputs, const int rows, const float* weights, float* out) {
  constexpr int WIDE = OUTPUTS_AT_ONCE<Here>, OUT_PAD = Here::OUT_PAD;
  for (int n = 0; n < OUT_PAD; n += WIDE) {
    Lanes<WIDE> some, sum;
    some.load(weights + Here::IN * OUT_PAD + n);
    for (int m = 0; m < rows; ++m) some.store(out + m * OUT_PAD + n);
    for (int k = 0; k < Here::IN; ++k) {
      if (marks.of[k] == 0) continue;  // mutant(dropped condition): loads weights that are not added
      some.load(weights + k * OUT_PAD + n);
      marks.each(k, [&](const int m) INLINED {
        float* const to = out + m * OUT_PAD + n;
        sum.load(to);
        sum.add_product(inputs[m * Here::IN_PAD + k], some);
        sum.store(to);
      });
    }
  }
  // Adding a skipped zero would turn -0 into 0. If a result is -0, the products are therefore computed without skipping.
  return !any_number(out, rows * OUT_PAD, [](const u32s bits) INLINED { return (u32s)(bits == math::SIGN); });
}

// Add the rows to a gradient whose entry (k, n) is number k * OUT_PAD + n from `at` on. Returns false if an activation gradient is
// not finite. Zeros may get the other sign here, which later additions of gradients remove.
template <class Here, class Marks, class Sums>
DEVICE bool add_skipping(const Marks& marks, const float* inputs, const float* out_grad, const int rows, const int at,
                         const Sums& sums) {
  constexpr int WIDE = OUTPUTS_AT_ONCE<Here>, OUT_PAD = Here::OUT_PAD;
  if (!all_finite(out_grad, rows * OUT_PAD)) return false;
  for (int n = 0; n < OUT_PAD; n += WIDE) {
    for (int k = 0; k < Here::IN; ++k) {
      if (marks.of[k] == 0 && sums.keep()) continue;
      Lanes<WIDE> sum, some;
      sums.begin(at + k * OUT_PAD + n, sum);
      marks.each(k, [&](const int m) INLINED {
        some.load(out_grad + m * OUT_PAD + n);
        sum.add_product(inputs[m * Here::IN_PAD + k], some);
      });
      sums.end(at + k * OUT_PAD + n, sum);
    }
  }
  return true;
}
