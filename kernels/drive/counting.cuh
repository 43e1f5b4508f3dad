// counting.cuh -- A float that counts operations. A separate build on a CPU (COUNT_OPERATIONS) replaces every `float` of the
// kernels by it. It counts + - * / and sqrt, and fma as two. Comparisons, signs, conversions and integers are not counted.
#pragma once

extern "C" {
u64 operations = 0;
}

struct Counted {
  float value;

  Counted() = default;
  constexpr Counted(float x) : value(x) {}
  constexpr Counted(int x) : value((float)x) {}
  constexpr Counted(u32 x) : value((float)x) {}
  explicit constexpr operator float() const { return value; }
  explicit constexpr operator int() const { return (int)value; }
  explicit constexpr operator u32() const { return (u32)value; }

  // Operations at compile time are not counted.
  static constexpr Counted result(float x, int count = 1) {
    if (!__builtin_is_constant_evaluated()) operations += count;
    return x;
  }
  constexpr Counted operator-() const { return -value; }
  constexpr Counted& operator+=(Counted x) { return *this = result(value + x.value); }
  constexpr Counted& operator-=(Counted x) { return *this = result(value - x.value); }
  constexpr Counted& operator*=(Counted x) { return *this = result(value * x.value); }
};
constexpr Counted operator+(Counted a, Counted b) { return Counted::result(a.value + b.value); }
constexpr Counted operator-(Counted a, Counted b) { return Counted::result(a.value - b.value); }
constexpr Counted operator*(Counted a, Counted b) { return Counted::result(a.value * b.value); }
constexpr Counted operator/(Counted a, Counted b) { return Counted::result(a.value / b.value); }
constexpr bool operator<(Counted a, Counted b) { return a.value < b.value; }
constexpr bool operator>(Counted a, Counted b) { return a.value > b.value; }
constexpr bool operator<=(Counted a, Counted b) { return a.value <= b.value; }
constexpr bool operator>=(Counted a, Counted b) { return a.value >= b.value; }
constexpr bool operator==(Counted a, Counted b) { return a.value == b.value; }
constexpr bool operator!=(Counted a, Counted b) { return a.value != b.value; }

namespace counted {
inline Counted fma(Counted a, Counted b, Counted c) { return Counted::result(__builtin_fmaf(a.value, b.value, c.value), 2); }
inline Counted sqrt(Counted x) { return Counted::result(__builtin_sqrtf(x.value)); }
inline Counted floor(Counted x) { return __builtin_floorf(x.value); }
inline Counted abs(Counted x) { return __builtin_fabsf(x.value); }
}  // namespace counted

#define float Counted
