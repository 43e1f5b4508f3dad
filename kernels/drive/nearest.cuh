// nearest.cuh -- Select the K nearest of many candidates, in registers, in ascending order: exactly (Nearest), or faster with
// quantized distances and a test for ambiguity (NearestWords).
#pragma once
#include "drive/math.cuh"

// Type of integers up to MOST: 32 bits if they suffice and there are many agents, otherwise 64 bits. With few agents 32 bits are
// not faster.
template <u64 MOST> using Whole = typename Choose<(NUM_AGENTS > 32 && MOST < 0xffffffffull), u32, u64>::type;

// Return the i of [0, COUNT) with the least distance(i), a whole number up to MOST. A tie goes to the lower i. All threads call it.
template <int COUNT, u64 MOST, class Distance> DEVICE int nearest_of(const Team team, Distance distance) {
  typedef Whole<MOST * COUNT + COUNT> Key;  // (distance, i)
  Key least = ~(Key)0;  // mutant(constant): no key is as great
  FOR_OWN(team, k, i, COUNT) {
    const Key key = (Key)distance(i) * COUNT + i;
    least = key < least ? key : least;  // mutant(swap <): equal where they meet
  }
  return (int)(team.min(least) % COUNT);
}

// Minimum and maximum of two positive normal floats, in one instruction.
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
template <class F> DEVICE F greater(F a, F b) { return a > b ? a : b; }  // mutant(swap >): equal where they meet
#endif
}  // namespace math

// The K least candidates, sorted by (distance, id). The result does not depend on the order of insertion.
template <class Distance, int K> struct Nearest {
  Distance distance[K];  // ascending, `far` in free places
  int id[K];             // -1 in free places

  DEVICE explicit Nearest(Distance far) {
    for (int k = 0; k < K; ++k) { distance[k] = far; id[k] = -1; }
  }

  // Each place takes the entry of the place before it, takes the new one, or keeps its own. No place waits for another.
  DEVICE void insert(Distance d, int j) {
    insert_before(d, j, [&](int k) { return d < distance[k] || (d == distance[k] && j < id[k]); });
  }
  // The same for ids in ascending order, so that `<` leaves a tie to the lower one. `offer` expects most candidates to be too far.
  DEVICE void offer(Distance d, int j) {
    if (d < distance[K - 1]) insert_next(d, j);  // mutant(dropped condition, swap <): more work, same result
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

// The same for a third of the work. A word has a distance, quantized to an integer number of steps of `bound` / MOST, in its upper
// bits, and an id of [0, IDS) in its lower bits. If two distances are quantized to the same integer, `sure` is false, and the
// caller must sort exactly. Words are positive normal floats, because a CPU computes the minimum of two float vectors fastest. F is
// float or floats.
template <class F, int K, int IDS> struct NearestWords {
  static constexpr int bits_of(int n) { return n <= 1 ? 0 : 1 + bits_of((n + 1) / 2); }
  static constexpr int ID_BITS = bits_of(IDS);
  static constexpr int PART_BITS = 30 - ID_BITS < 23 ? 30 - ID_BITS : 23;
  // mutant(swap -): any number of parts that fits
  static constexpr float MOST = (float)((1 << PART_BITS) - 1);  // distances of `bound` and more
  static constexpr u32 LEAST = 0x00800000u;                     // the bits of the least normal float
  static constexpr float NOBODY = 3e38f;
  static_assert(IDS <= 1 << 16, "ids leave too few bits to the distance");

  F word[K + 1];  // ascending. One more than K, to see whether the last of them is ambiguous
  F parts;

  DEVICE void clear(F bound) {
    parts = MOST / bound;  // mutant(swap /): may take the slow way
    for (int k = 0; k <= K; ++k) word[k] = F{} + NOBODY;  // mutant(swap +): may take the slow way
  }
  // Distances that are further apart than this never become the same number.
  DEVICE F part() const { return 2.0f / parts; }  // mutant(swap /): looks further than it has to
  DEVICE F of(F distance, u32 id) const {
    const F scaled = distance * parts;
    const F part = (scaled < MOST ? scaled : F{} + MOST) + math::COUNT;  // mutant(swap <): equal where they meet
    return math::from_bits((math::bits(part) << ID_BITS) + (LEAST - (math::bits(math::COUNT) << ID_BITS) + id));
  }
  // Each place takes the median of its own word, the word before it, and the new one. No place waits for another.
  DEVICE void insert(F added) {
    UNROLL for (int k = K; k > 0; --k) word[k] = math::lesser(word[k], math::greater(word[k - 1], added));
    word[0] = math::lesser(word[0], added);  // mutant(dropped statement): may take the slow way
  }
  // Whether the K-th is as far as `bound` or further, which its word cannot distinguish. For words that are floats.
  // mutant(swap - 2): may take the slow way
  DEVICE bool far() const { return ((math::bits(word[K - 1]) - LEAST) >> ID_BITS) >= (u32)MOST; }
  static DEVICE int id(float word) { return (int)((math::bits(word) - LEAST) & ((1u << ID_BITS) - 1u)); }
  // Whether there are K whose order is certain: no two neighbors among the K + 1 words have the same number. Free places have the
  // same number, so that fewer than K are never sure. For words that are floats.
  DEVICE bool sure() const {
    const auto part = [&](int k) { return (math::bits(word[k]) - LEAST) >> ID_BITS; };
    bool distinct = true;
    UNROLL for (int k = 0; k < K; ++k) distinct = distinct && part(k) != part(k + 1);
    return distinct;
  }
};
