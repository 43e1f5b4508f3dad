// halves.cuh -- Type of observations: float or, with OBS_HALF, bfloat16, the upper half of a float, rounded to nearest, ties to
// even. Environments write floats to either. Rounding uses integer operations, so that all devices agree.
#pragma once

struct bf16 {
  u16 bits;

  DEVICE bf16& operator=(float x) {
    u32 word;
#ifdef __CUDACC__
    word = __float_as_uint(x);
#else
    __builtin_memcpy(&word, &x, 4);
#endif
    const bool number = (word & 0x7fffffffu) <= 0x7f800000u;
    bits = number ? (u16)((word + 0x7fffu + (word >> 16 & 1u)) >> 16) : (u16)0x7fc0u;
    return *this;
  }
};

#if OBS_HALF
typedef bf16 obs_t;
#else
typedef float obs_t;
#endif

// Copy `COUNT` observation entries by the whole team. LAST: to memory that this launch does not read again.
template <int COUNT, bool LAST, class T> DEVICE void copy_obs(const Team team, T* to, const T* from) {
  if constexpr (COUNT * sizeof(T) % 4 != 0) {  // mutant(swap *, constant 2): speed only
    for (int k : team.each(COUNT)) to[k] = from[k];
  } else if constexpr (LAST) {
    store_words<COUNT * (int)sizeof(T) / 4>(team, to, from);
  } else {
    copy_words<COUNT * (int)sizeof(T) / 4>(team, to, from);
  }
}
