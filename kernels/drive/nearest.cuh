// nearest.cuh -- the K nearest of many, kept in registers in ascending order: exactly, or fast and knowing when in doubt.
#pragma once
#include "drive/math.cuh"

// A type for whole numbers up to MOST: of 32 bits where they are enough and agents are many, since it pays only there; else
// of 64.
template <u64 MOST> using Whole = typename Choose<(NUM_AGENTS > 32 && MOST < 0xffffffffull), u32, u64>::type;

// The i of [0, COUNT) with the least distance(i), a whole number up to MOST; of equal ones the lower i. All members call it.
template <int COUNT, u64 MOST, class Distance> DEVICE int nearest_of(const Team team, Distance distance) {
  typedef Whole<MOST * COUNT + COUNT> Key;  // (distance, i)
  Key least = ~(Key)0;  // equal(constant): no key is as great
  FOR_OWN(team, k, i, COUNT) {
    const Key key = (Key)distance(i) * COUNT + i;
    least = key < least ? key : least;  // equal(swap <): equal where they meet
  }
  return (int)(team.min(least) % COUNT);
}

// Of two positive normal numbers, in one instruction.
namespace math {
#ifdef __CUDACC__
DEVICE float lesser(float a, float b) { return fminf(a, b); }
DEVICE float greater(float a, float b) { return fmaxf(a, b); }
#else
#ifndef COUNT_OPERATIONS
DEVICE u32s bits(floats x) { return (u32s)x; }
DEVICE floats from_bits(u32s x) { return (floats)x; }
#endif
template <class F> DEVICE F lesser(F a, F b) { return a < b ? a : b; }
template <class F> DEVICE F greater(F a, F b) { return a > b ? a : b; }  // equal(swap >): equal where they meet
#endif
}  // namespace math

// Sorted by (distance, id), whatever order they come in.
template <class Distance, int K> struct Nearest {
  Distance distance[K];  // ascending; `far` where there is nobody
  int id[K];             // -1 where there is nobody

  DEVICE explicit Nearest(Distance far) {
    for (int k = 0; k < K; ++k) { distance[k] = far; id[k] = -1; }
  }

  // Each place takes what stood in the place before it, or the new one, or keeps what it has. No place waits for another.
  DEVICE void insert(Distance d, int j) {
    insert_before(d, j, [&](int k) { return d < distance[k] || (d == distance[k] && j < id[k]); });
  }
  // The same where ids come in ascending order, so that `<` leaves a tie to the lower one; `offer` expects most to be too far.
  DEVICE void offer(Distance d, int j) {
    if (d < distance[K - 1]) insert_next(d, j);  // equal(dropped condition, swap <): more work, same result
  }
  DEVICE void insert_next(Distance d, int j) {
    insert_before(d, j, [&](int k) { return d < distance[k]; });
  }

 private:
  template <class Before> DEVICE void insert_before(Distance d, int j, Before comes_before) {
    UNROLL for (int k = K - 1; k > 0; --k) {
      const bool before = comes_before(k - 1), here = comes_before(k);
      id[k] = before ? id[k - 1] : here ? j : id[k];
      distance[k] = before ? distance[k - 1] : here ? d : distance[k];
    }
    const bool here = comes_before(0);
    id[0] = here ? j : id[0];
    distance[0] = here ? d : distance[0];
  }
};

// The same for a third of the work: one word holds a distance, rounded to a whole number of parts of `bound`, and in its lower
// bits an id of [0, IDS). Where two distances became the same number, `sure` is false: the order is found in another way then.
// Words are floats, all positive and normal, since a CPU finds the lesser of two vectors of them fastest. F is float or floats.
template <class F, int K, int IDS> struct NearestWords {
  static constexpr int bits_of(int n) { return n <= 1 ? 0 : 1 + bits_of((n + 1) / 2); }
  static constexpr int ID_BITS = bits_of(IDS);
  static constexpr int PART_BITS = 30 - ID_BITS < 23 ? 30 - ID_BITS : 23;
  // equal(swap -): any number of parts that fits
  static constexpr float MOST = (float)((1 << PART_BITS) - 1);  // what is as far as `bound` or further
  static constexpr u32 LEAST = 0x00800000u;                     // the bits of the least normal float
  static constexpr float NOBODY = 3e38f;
  static_assert(IDS <= 1 << 16, "ids leave too few bits to the distance");

  F word[K + 1];  // ascending; one more than asked for, to see whether the last of them is in doubt
  F parts;

  DEVICE void clear(F bound) {
    parts = MOST / bound;  // equal(swap /): may take the slow way
    for (int k = 0; k <= K; ++k) word[k] = F{} + NOBODY;  // equal(swap +): may take the slow way
  }
  // No two distances further apart than this become the same number.
  DEVICE F part() const { return 2.0f / parts; }  // equal(swap /): looks further than it has to
  DEVICE F of(F distance, u32 id) const {
    const F scaled = distance * parts;
    const F part = (scaled < MOST ? scaled : F{} + MOST) + math::COUNT;  // equal(swap <): equal where they meet
    return math::from_bits((math::bits(part) << ID_BITS) + (LEAST - (math::bits(math::COUNT) << ID_BITS) + id));
  }
  // Each place takes the middle one of what it has, what stood before it, and the new one. No place waits for another.
  DEVICE void insert(F added) {
    UNROLL for (int k = K; k > 0; --k) word[k] = math::lesser(word[k], math::greater(word[k - 1], added));
    word[0] = math::lesser(word[0], added);  // equal(dropped statement): may take the slow way
  }
  // Whether the K-th is as far as `bound` or further; its word does not say how far then. For words that are floats.
  // equal(swap - 2): may take the slow way
  DEVICE bool far() const { return ((math::bits(word[K - 1]) - LEAST) >> ID_BITS) >= (u32)MOST; }
  static DEVICE int id(float word) { return (int)((math::bits(word) - LEAST) & ((1u << ID_BITS) - 1u)); }
  // Whether there are K whose order is certain: no two neighbours among the K + 1 words have the same number. Places where
  // nobody is have the same number, so that fewer than K are never sure. For words that are floats.
  DEVICE bool sure() const {
    const auto part = [&](int k) { return (math::bits(word[k]) - LEAST) >> ID_BITS; };
    bool distinct = true;
    UNROLL for (int k = 0; k < K; ++k) distinct = distinct && part(k) != part(k + 1);
    return distinct;
  }
};
