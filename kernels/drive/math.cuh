// math.cuh -- Elementary functions in float32 that give bitwise identical results on a CPU and on a GPU.
//
// The bits agree because every function is a fixed sequence of operations that IEEE 754 rounds correctly (+ - * / sqrt fma, floor,
// conversions), comparisons, and integer operations. The build must keep that sequence as written: -ffp-contract=off on the CPU,
// --fmad=false on the GPU, never -ffast-math. Results below 2^-126 are zero on both sides (-ftz=true on the GPU, FTZ and DAZ set on
// the CPU). No function's result depends on whether a product just under 2^-126 is flushed before it is rounded (as on Arm) or
// after (as on x86 and, measured, on an NVIDIA H200).
//
// For speed, not for the bits: g++ vectorizes `log`, `wrap_turn`, `sqrt`, `to_int` and `pow` well only with -fno-math-errno
// -fno-trapping-math. The others need no flags beyond -O3.
//
// The sign and the payload of a NaN do not agree, and must not be used. If an *argument* is denormal (arithmetic makes none, so it
// came from outside), `abs`, `min`, `max` and `clamp` may return it or zero.
//
// Worst errors are in units in the last place (ulp) of the float32 result, measured against float64: over every float32 of the
// given range if the comment has "all", otherwise over at least 10^8 arguments of it. Polynomials are minimax fits of our own
// (Remez and Lawson iterations, coefficients rounded to float32 one after the other and the rest fitted again). Argument reductions
// are those of W. J. Cody and W. Waite, "Software Manual for the Elementary Functions" (1980), done with fma.
#pragma once

namespace math {

[[maybe_unused]] constexpr float PI = 3.14159274f;       // pi + 8.7e-8
[[maybe_unused]] constexpr float TWO_PI = 6.28318548f;   // 2 pi + 1.7e-7

// --- operations -----------------------------------------------------------------------------------------------------

#ifdef __CUDACC__
DEVICE u32 bits(float x) { return __float_as_uint(x); }
DEVICE float from_bits(u32 x) { return __uint_as_float(x); }
DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }  // a*b + c, rounded once
DEVICE float sqrt(float x) { return __fsqrt_rn(x); }                        // NaN for x < 0
DEVICE double sqrt_double(double x) { return __dsqrt_rn(x); }               // only for sums of the learner
DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }           // a / b under any -prec-div
DEVICE float floor(float x) { return floorf(x); }
DEVICE float abs(float x) { return fabsf(x); }
DEVICE int popcount(u32 x) { return __popc(x); }  // number of bits of x that are 1
// 1 / a, rounded to nearest, for a in [1, 2^100]. Equals 1.0f / a there, without its branch for other numbers. The initial guess is
// the only operation here that IEEE 754 does not define. tests/kernels/drive/test_math.py tries all a on a GPU.
DEVICE float inverse(float a) {
  float guess;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(guess) : "f"(a));
  return fma(guess, fma(-a, guess, 1.0f), guess);
}
#else
DEVICE u32 bits(float x) { u32 y; __builtin_memcpy(&y, &x, 4); return y; }
DEVICE float from_bits(u32 x) { float y; __builtin_memcpy(&y, &x, 4); return y; }
DEVICE double sqrt_double(double x) { return __builtin_sqrt(x); }
DEVICE float divide(float a, float b) { return a / b; }
DEVICE int popcount(u32 x) { return __builtin_popcount(x); }
#ifdef COUNT_OPERATIONS
using counted::fma;
using counted::sqrt;
using counted::floor;
using counted::abs;
#else
DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float sqrt(float x) { return __builtin_sqrtf(x); }
DEVICE float floor(float x) { return __builtin_floorf(x); }
DEVICE float abs(float x) { return __builtin_fabsf(x); }
#endif
#endif

constexpr u32 SIGN = 0x80000000u;
DEVICE float infinity() { return from_bits(0x7f800000u); }
DEVICE float not_a_number() { return from_bits(0x7fc00000u); }

// Division by a number that is used often, or of a number that is often 0: CUDA's a / b takes a branch for a == 0, and a warp waits
// for its slowest lane. The error is at most 0.51 ulp. of(by) is 1, of(0) is 0.
struct Divisor {
  float by, inverse;
  DEVICE explicit Divisor(float by) : by(by), inverse(1.0f / by) {}
  DEVICE Divisor(float by, float inverse) : by(by), inverse(inverse) {}
  DEVICE float of(float a) const {
    const float quotient = a * inverse;
    return fma(fma(-by, quotient, a), inverse, quotient);  // corrected by the residual a - quotient * by
  }
};

// The magnitude of x with the sign bit of `sign`.
DEVICE float copy_sign(float x, float sign) { return from_bits((bits(x) & ~SIGN) | (bits(sign) & SIGN)); }

// Defined by one comparison, so that equal zeros and NaN behave alike on both sides: the second argument is returned
// unless the first is strictly less (greater). So min(NaN, b) = b, min(a, NaN) = NaN, min(-0, +0) = +0.
DEVICE float min(float a, float b) { return a < b ? a : b; }
DEVICE float max(float a, float b) { return a > b ? a : b; }

// x limited to [lo, hi]. NaN gives lo, and a zero equal to a limit gives the limit. Requires lo <= hi.
DEVICE float clamp(float x, float lo, float hi) { return min(max(x, lo), hi); }

DEVICE int min(int a, int b) { return a < b ? a : b; }
DEVICE int max(int a, int b) { return a > b ? a : b; }  // mutant(swap >): equal where they meet
DEVICE int abs(int x) { return x < 0 ? (int)(0u - (u32)x) : x; }  // abs(-2^31) = -2^31
DEVICE int clamp(int x, int lo, int hi) { return min(max(x, lo), hi); }

// Number of bits of x below its lowest 1. 32 for x = 0.
DEVICE int count_trailing_zeros(u32 x) { return popcount(~x & (x - 1u)); }

// Truncate toward zero. Outside the range of int the result is the nearest int. NaN gives 0.
DEVICE int to_int(float x) {
#ifdef __CUDACC__
  return __float2int_rz(x);  // saturates, and gives 0 for NaN
#else
  const bool fits = (x >= -2147483648.0f) & (x < 2147483648.0f);  // & rather than &&: no branch. mutant(swap >=): -2^31 either way
  const int inside = (int)(fits ? x : 0.0f);
  const int above = x > 0.0f ? 2147483647 : inside, below = x < 0.0f ? -2147483647 - 1 : 0;  // mutant(swap <): 0 fits
  return fits ? inside : x > 0.0f ? above : below;  // mutant(swap >): 0 fits
#endif
}

// Adding 1.5 * 2^23 to x, |x| < 2^22, rounds x to the nearest integer (ties to even) and leaves it, in two's complement, in the low
// bits of the sum. Subtracting it again gives that integer as a float.
constexpr float ROUND = 12582912.0f;
// Adding 2^23 to x in [0, 2^23) does the same, and the low 23 bits are all of the integer.
constexpr float COUNT = 8388608.0f;

// --- circular functions ---------------------------------------------------------------------------------------------

// Sine and cosine of x radians.
// Error, |x| <= 1e4, all: sin 1.54, cos 1.54 ulp (|x| <= pi/4: 0.69 and 0.88). |x| <= 1e6, all: 1.81. From about 6e6 on the values
// are meaningless, but in [-1, 1]. inf and NaN give NaN. sin(+-0) = +0, cos(+-0) = 1.
// Method: x = k pi/2 + r, |r| <= pi/4, with pi/2 in three parts (k times the first is subtracted exactly), then polynomials in r.
// The quadrant k mod 4 swaps the two and sets their signs. No branches, 24 operations on a GPU.
DEVICE void sincos(float x, float* sine, float* cosine) {
  const float shifted = fma(x, 0.636619747f, ROUND);  // 2 / pi
  const float k = shifted - ROUND;
  float r = fma(k, -1.57079637f, x);
  r = fma(k, 4.37113883e-8f, r);
  r = fma(k, 1.71512451e-15f, r);
  r = abs(r) > 1.0f ? 0.0f : r;  // only for huge x. Keeps NaN

  const float z = r * r;
  float s = fma(z, -0.000195078828f, 0.00833210628f);
  s = fma(z, s, -0.166666538f);
  s = fma(z * r, s, r);
  float c = fma(z, 2.44320927e-5f, -0.00138873083f);
  c = fma(z, c, 0.0416666456f);
  c = fma(z, c, -0.5f);
  c = fma(z, c, 1.0f);

  const u32 half_turn = bits(shifted) << 30, quarter_turn = bits(shifted) << 31;  // bits 1 and 0 of k, in the sign bit
  const bool swap = quarter_turn != 0;
  *sine = from_bits(bits(swap ? c : s) ^ (half_turn & SIGN));
  *cosine = from_bits(bits(swap ? s : c) ^ ((half_turn ^ quarter_turn) & SIGN));
}

// As sincos. The compiler removes the unused half.
DEVICE float sin(float x) {
  float s, c;
  sincos(x, &s, &c);
  return s;
}
DEVICE float cos(float x) {
  float s, c;
  sincos(x, &s, &c);
  return c;
}

// The angle of the point (x, y), in [-PI, PI], with the signs of C's atan2 for zeros, axes and infinities. In particular atan2(+-0,
// +0) = +-0 and atan2(+-0, -0) = +-PI. NaN if an argument is NaN.
// Error: 1.53 ulp if the quotient of the arguments is not denormal.
// Method: the arctangent of smaller / larger magnitude, in [0, 1], by a polynomial, then pi/2 -+ a and pi - a. There pi/2 and pi
// are products of two floats inside an fma, and so exact to 1e-13.
DEVICE float atan2(float y, float x) {
  const float ax = abs(x), ay = abs(y);
  const bool steep = ay > ax;
  const float large = steep ? ay : ax, small = steep ? ax : ay;
  float t = divide(small, large);
  t = small == large ? 1.0f : t;  // also inf / inf
  t = large == 0.0f ? small : t;  // 0 or NaN

  const float z = t * t;
  float p = fma(z, -0.00178214419f, 0.0108662713f);
  p = fma(z, p, -0.0310935341f);
  p = fma(z, p, 0.0578788705f);
  p = fma(z, p, -0.0839920789f);
  p = fma(z, p, 0.109508611f);
  p = fma(z, p, -0.142640144f);
  p = fma(z, p, 0.199985296f);
  p = fma(z, p, -0.333332986f);
  const float first = fma(z * t, p, t);

  const bool left = (bits(x) & SIGN) != 0;
  const float turned = left ? -first : first;
  const float upper = fma(1.38761878f, 1.13200855f, -turned);  // pi/2 - turned
  const float lower = left ? fma(1.68325555f, 1.8663789f, turned) : first;  // pi + turned
  return copy_sign(steep ? upper : lower, y);
}

// The angle in [-PI, PI) that differs from x by whole turns. An x in this range is returned unchanged.
// Error, |x| < 1e5: 1.5 ulp of PI (3.6e-7). From about 2e7 on the result is some value in the range. inf and NaN give NaN.
DEVICE float wrap_angle(float x) {
  const float k = fma(x, 0.159154922f, ROUND) - ROUND;  // 1 / (2 pi) rounded down: k = 0 for |x| <= PI
  float r = fma(k, -6.28318548f, x);
  r = fma(k, 1.74845553e-7f, r);
  r = r >= PI ? r - TWO_PI : r;
  r = r < -PI ? r + TWO_PI : r;
  const float outside = x * 0.0f;  // 0 or NaN
  return (r >= -PI) & (r < PI) ? r : outside;  // mutant(swap <): all 2^32 floats were tried
}

// The angle in [0, TWO_PI) that differs from x by whole turns, never TWO_PI itself. An x in this range is returned unchanged.
// Error, |x| < 1e5: 1 ulp of TWO_PI (4.8e-7), where 0 and TWO_PI count as the same angle: just below a whole turn the result may be
// 0. From about 2e7 on the result is some value in the range. inf and NaN give NaN.
DEVICE float wrap_turn(float x) {
  const float k = floor(x * 0.159154922f);
  float r = fma(k, -6.28318548f, x);
  r = fma(k, 1.74845553e-7f, r);
  r = r < 0.0f ? r + TWO_PI : r;  // mutant(swap <): all 2^32 floats were tried
  r = r >= TWO_PI ? r - TWO_PI : r;
  const float outside = x * 0.0f;  // 0 or NaN
  return (r >= 0.0f) & (r < TWO_PI) ? r : outside;
}

// The turn from one direction to another, both in [0, 2 pi), as an angle in (-pi, pi). The float PI is slightly more than pi, so a
// difference of exactly half a turn in floats is more than half a turn in either direction.
DEVICE float shortest_turn(float from, float to) {
  const float turn = to - from;
  return turn >= PI ? turn - TWO_PI : turn <= -PI ? turn + TWO_PI : turn;
}

// --- exponentials and logarithms ------------------------------------------------------------------------------------

// (e^r - 1 - r) / r^2 for |r| <= ln(2)/2 and a little more.
DEVICE float exp_rest(float r) {
  float p = fma(r, 0.00138186989f, 0.00836871564f);
  p = fma(r, p, 0.0416682921f);
  p = fma(r, p, 0.166665211f);
  return fma(r, p, 0.49999994f);
}

// e^r for such r, to 0.8 ulp.
DEVICE float exp_small(float r) { return fma(r, fma(r, exp_rest(r), 1.0f), 1.0f); }

// e^x. Above 88.722832: inf. Below -87.336540 (where e^x < 2^-126): 0. NaN gives NaN, and exp(0) = 1.
// Error, all x between: 0.90 ulp.
// Method: x = k ln 2 + r. k is added to the exponent of e^r.
DEVICE float exp(float x) {
  const float shifted = fma(x, 1.44269502f, ROUND);  // 1 / ln 2
  const float k = shifted - ROUND;
  const float r = fma(k, 1.90465421e-9f, fma(k, -0.693147182f, x));
  const float scaled = from_bits(bits(exp_small(r)) + (bits(shifted) << 23));
  const float overflow = x + infinity();  // inf or NaN
  const float e = x <= 88.7228317f ? scaled : overflow;
  return x < -87.3365402f ? 0.0f : e;
}

// x = 2^k * m with m in [2/3, 4/3), for positive normal x.
DEVICE void split(float x, float* k, float* m) {
  const u32 exponent = (bits(x) - 0x3f2aaaabu) & 0xff800000u;
  *k = (float)(int)exponent * 1.1920929e-7f;  // 2^-23
  *m = from_bits(bits(x) - exponent);
}

// log(1 + f) for |f| <= 1/3 and a little more, plus k ln 2.
DEVICE float log_near_1(float k, float f) {
  float p = fma(f, -0.12880218f, 0.139855161f);
  p = fma(f, p, -0.121872552f);
  p = fma(f, p, 0.140055656f);
  p = fma(f, p, -0.166802317f);
  p = fma(f, p, 0.200104341f);
  p = fma(f, p, -0.249998048f);
  p = fma(f, p, 0.333332151f);
  p = fma(f, p, -0.5f);
  return fma(k, 0.693147182f, fma(f * f, p, f));
}

// The natural logarithm. log(+-0) = -inf, log(inf) = inf, NaN for x < 0 and NaN, log(1) = +0.
// Error, all positive normal x: 0.94 ulp.
// Method: log x = k ln 2 + log(1 + f), |f| <= 1/3, the latter by a polynomial.
DEVICE float log(float x) {
  float k, m;
  split(x, &k, &m);
  const float y = log_near_1(k, m - 1.0f);

  const u32 word = bits(x);
  const float negative = word > SIGN ? not_a_number() : x;  // inf and NaN stay
  const float special = (word & ~SIGN) < 0x00800000u ? -infinity() : negative;  // zero, also a denormal
  return word - 0x00800000u < 0x7f000000u ? y : special;  // positive, normal and finite
}

// log(1 + x), accurate also for small x, where 1 + x loses most of it. log1p(+-0) = +0, log1p(-1) = -inf, log1p(inf) = inf, NaN for
// x < -1 and NaN.
// Error, all x > -1: 1.55 ulp.
// Method: 1 + x = u + c, where u is the rounded sum and c is exactly its rounding error. With u = 2^k m, 1 + x = 2^k (m + 2^-k c).
// Its logarithm is that of `log` with 2^-k c added to m - 1.
DEVICE float log1p(float x) {
  const float u = 1.0f + x, c = x - (u - 1.0f);
  float k, m;
  split(u, &k, &m);
  const float scaled = c * from_bits(bits(m) - bits(u) + 0x3f800000u);
  const float y = log_near_1(k, m - 1.0f + (x < 16777216.0f ? scaled : 0.0f));  // negligible from 2^24 on

  const float outside = x < -1.0f ? not_a_number() : x;  // inf and NaN stay
  const float special = x == -1.0f ? -infinity() : outside;
  return (x > -1.0f) & (x < infinity()) ? y : special;
}

// log(1 + e^x), a smooth max(x, 0). inf for inf, 0 for -inf, NaN for NaN, x itself from 17 on.
// Error, all x > -87.336: 1.99 ulp. Below, e^x < 2^-126, and the result is 0.
// Method: max(x, 0) + log(1 + e^-|x|), which neither overflows nor cancels.
DEVICE float softplus(float x) { return max(x, 0.0f) + log1p(exp(-abs(x))); }

// The hyperbolic tangent: odd, +-1 for |x| > 9.02, tanh(+-0) = +-0, NaN for NaN.
// Error, all x: 1.59 ulp.
// Method: an odd polynomial below 0.55, and 1 - 2 / (e^2|x| + 1) above.
DEVICE float tanh(float x) {
  const float z = x * x;
  float p = fma(z, -0.00624284893f, 0.021050714f);
  p = fma(z, p, -0.0538475476f);
  p = fma(z, p, 0.133325443f);
  p = fma(z, p, -0.333333164f);
  const float inner = fma(z * x, p, x);

  const float magnitude = abs(x);
#ifdef __CUDACC__
  const float near = magnitude > 20.0f ? 20.0f : magnitude;  // keeps NaN. The result is 1 from 9.02 on
  const float outer = 1.0f - 2.0f * inverse(exp(near + near) + 1.0f);
#else
  const float outer = 1.0f - divide(2.0f, exp(magnitude + magnitude) + 1.0f);
#endif
  return copy_sign(magnitude >= 0.55f ? outer : inner, x);  // mutant(swap >=): same bits at 0.55
}

// The logarithm of x, positive and normal, as a sum of two floats, to 2^-30: 2 atanh((m - 1) / (m + 1)) + k ln 2.
DEVICE void log_in_two(float x, float* high, float* low) {
  float k, m;
  split(x, &k, &m);
  const float f = m - 1.0f, g = m + 1.0f;
  const float g_low = f - (g - 2.0f);  // rounding error of g
  const float s = divide(f, g);
  const float s_low = divide(fma(-s, g_low, fma(-s, g, f)), g);
  const float z = s * s;
  float p = fma(z, 0.241515979f, 0.285035163f);
  p = fma(z, p, 0.400009334f);
  p = fma(z, p, 0.666666627f);
  const float tail = fma(z * s, p, fma(s_low + s_low, z, s_low + s_low));
  const float k_high = k * 0.693145752f;  // ln 2 to 15 bits: exact
  const float sum = k_high + (s + s);
  const float rest = ((s + s) - (sum - k_high)) + fma(k, 1.42860677e-6f, tail);
  *high = sum + rest;
  *low = rest - (*high - sum);
}

// x^y for x >= 0 (-0 counts as 0, and x < 0 gives NaN unless y = 0). x^0 = 1^y = 1, also for NaN. The limits at 0 and inf are those
// of C. A result below 2^-126 is 0.
// Error: 1.1 ulp for x in [0.001, 10], |y| <= 4. The maximum found anywhere is 4.4 ulp (near results of e^+-87).
// Method: the logarithm as a sum of two floats, times y, as a sum of two floats. e to that power is scaled by two powers of two.
DEVICE float pow(float x, float y) {
  float high, low;
  log_in_two(x, &high, &low);
  const float e = y * high;
  const float e_low = fma(y, low, fma(y, high, -e));
  const float below = e > 120.0f ? 120.0f : e;  // mutant(swap >): equal where they meet
  const float bounded = below < -120.0f ? -120.0f : below;  // keeps NaN. mutant(swap <): equal where they meet
  const float shifted = fma(bounded, 1.44269502f, ROUND);
  const float n = shifted - ROUND;
  const float r = fma(n, 1.90465421e-9f, fma(n, -0.693147182f, bounded)) + (bounded == e ? e_low : 0.0f);
  const u32 exponent = bits(shifted) - bits(ROUND), half = (u32)((int)exponent >> 1);
  float power = exp_small(r) * from_bits((half + 127u) << 23) * from_bits((exponent - half + 127u) << 23);

  const bool at_limit = x == 0.0f || x == infinity();
  const float limit = (x == 0.0f) == (y > 0.0f) ? 0.0f : infinity();  // mutant(swap >): y = 0 gives 1 anyway
  power = at_limit ? limit : power;
  power = x >= 0.0f ? power : not_a_number();
  power = y != y ? y : power;
  return x == 1.0f || y == 0.0f ? 1.0f : power;
}

// x^y - 1, accurate also where x^y is near 1 and the difference loses most of it. Otherwise as pow. 0 where |y log x| < 1e-30, so
// that nothing depends on how products just under 2^-126 are flushed.
// Error: 2.13 ulp for x in [0.001, 10], |y| <= 4. The maximum found anywhere is 3.24 ulp.
// Method: that of pow, but the 1 of e^r, r = y log x - n ln 2, is left out and added as part of 2^n - 1, exact for |n| <= 24.
DEVICE float pow_minus_1(float x, float y) {
  float high, low;
  log_in_two(x, &high, &low);
  const float e = y * high;
  const float e_low = fma(y, low, fma(y, high, -e));
  const bool finite = (x > 0.0f) & (x < infinity()) & (abs(e) < 80.0f);  // mutant(swap < 2): both are right at 80
  const float shifted = fma(finite ? e : 0.0f, 1.44269502f, ROUND);
  const float n = shifted - ROUND;
  // mutant(swap <): both are right at 1e-30
  const float r = abs(e) < 1e-30f ? 0.0f : fma(n, 1.90465421e-9f, fma(n, -0.693147182f, e)) + e_low;
  const float scale = from_bits((bits(shifted) - bits(ROUND) + 127u) << 23);
  const float near = fma(scale, fma(r * r, exp_rest(r), r), scale - 1.0f);
  return finite ? near : pow(x, y) - 1.0f;
}

}  // namespace math
