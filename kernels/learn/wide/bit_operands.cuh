// bit_operands.cuh -- Operands of products whose entries are bits of observations, expanded in registers.
//
// A bit that is set becomes 2, whose bfloat16 representation has a single bit, number 14. So one rotation and one mask expand two
// entries. As A operand the bits meet weights that are halved (wide_weights.cu). As B operand the sums are halved at the end.
#pragma once
#include "learn/mma/mma.cuh"
#include "learn/observed.cuh"

constexpr bool STORES_BITS = OBSERVED == OBSERVED_BITS;
constexpr int OBS_WORDS = observed_row(OBS);  // of bits
constexpr u32 TWOS = 0x40004000u;             // two entries. mutant(constant): on a GPU only
typedef u16 HalfWord MAY_ALIAS;

// Rows of OBS_WORDS words as A operand. Each word has its 16 even columns in the lower half and its odd ones in the upper half.
struct BitRows {
  static constexpr int STRIDE = OBS_WORDS | 1;  // an odd number puts rows into different banks
  Word* at;

  DEVICE Word* row(const int m) const { return at + m * STRIDE; }
};
// Move the even bits of a word to its lower half and the odd bits to its upper half, by exchanges of neighboring groups of bits.
DEVICE u32 even_bits_first(u32 word) {
  UNROLL for (int size = 1; size < 16; size *= 2) {
    const u32 second = size == 1 ? 0x22222222u : size == 2 ? 0x0c0c0c0cu : size == 4 ? 0x00f000f0u : 0x0000ff00u;
    const u32 changed = (word ^ word >> size) & second;
    word ^= changed ^ changed << size;
  }
  return word;
}

// Bits of K rows as B operand (K, COLUMNS). Word (i, n) has 16 columns from 16 n on, those of row 2 i in its lower half and those
// of row 2 i + 1 in its upper half.
template <int COLUMNS> struct BitPairs {
  static constexpr int STRIDE = COLUMNS / 16;
  Word* at;

  DEVICE Word& word(const int i, const int n) const { return at[i * STRIDE + n]; }
};

#ifdef __CUDACC__
DEVICE u32 rotate_left(const u32 word, const int by) { return __funnelshift_l(word, word, by); }  // modulo 32
// Load the 16 x 16 block at (m, k) as A fragment.
template <bool TRANSPOSED> DEVICE void load_a(u32 (&to)[4], const BitRows a, const int m, const int k) {
  const int lane = threadIdx.x % WARP_SIZE, g = lane / 4, t = lane % 4, quarter = k % 32 / 8;
  UNROLL for (int half = 0; half < 2; ++half) {
    const u32 word = rotate_left(a.row(m + 8 * half + g)[k / 32], -t);
    to[half] = word << (14 - 4 * quarter) & TWOS;
    to[2 + half] = word << (10 - 4 * quarter) & TWOS;
  }
}
// Load the 16 x 16 block at (k, n) as two B fragments.
template <bool TRANSPOSED, int COLUMNS> DEVICE void load_b(u32 (&to)[4], const BitPairs<COLUMNS> b, const int n, const int k) {
  const int lane = threadIdx.x % WARP_SIZE, g = lane / 4, t = lane % 4;
  UNROLL for (int half = 0; half < 2; ++half) {
    const u32 word = b.word(k / 2 + 4 * half + t, n / 16);
    to[half] = rotate_left(word, 14 - g) & TWOS;
    to[2 + half] = rotate_left(word, 6 - g) & TWOS;
  }
}
#else
// Entries of an operand.
DEVICE float two_if(const u32 bit) { return (bit & 1u) != 0u ? 2.0f : 0.0f; }
DEVICE float entry_at(const BitRows a, const int m, const int k) {
  return two_if(a.row(m)[k / 32] >> (k % 2 * 16 + k % 32 / 2));
}
template <int COLUMNS> DEVICE float entry_at(const BitPairs<COLUMNS> b, const int k, const int n) {
  return two_if(b.word(k / 2, n / 16) >> (k % 2 * 16 + n % 16));
}
#endif
