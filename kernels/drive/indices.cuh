// indices.cuh -- which indices belong to which member of a team, and arrays that one thread may keep in registers.
#pragma once

// The indices of [0, n) that belong to one member: rank, rank + TEAM, ... Made for a range-based for.
struct Each {
  int first, last;
  struct Index {
    int i;
    DEVICE int operator*() const { return i; }
    DEVICE void operator++() { i += TEAM; }
    DEVICE bool operator!=(const Index& end) const { return i < end.i; }
  };
  DEVICE Index begin() const { return {first}; }
  DEVICE Index end() const { return {last}; }
};

// The same for a constant n: the k-th own index is i. A loop of few is none, which spares the members of a warp from waiting
// for each other at its end.
constexpr int own_count(const int n) { return (n + TEAM - 1) / TEAM; }
#ifdef COUNT_BRANCHES  // a loop's end is a branch that goes both ways
#define FOR_OWN(team, k, i, n) for (int k = 0, i = (team).rank; i < (n); ++k, i += TEAM)
#else
#define FOR_OWN(team, k, i, n)                                   \
  UNROLL_TIMES(own_count(n) <= FEW_OWN ? own_count(n) : 4)       \
  for (int k = 0; k < own_count(n); ++k)                         \
    if (const int i = (team).rank + k * TEAM; i < (n))
#endif


// of[i], where a team of one may keep `of` in registers, which have no index.
constexpr int MOST_PICKED = 8;
template <class T, int N> DEVICE T pick(const T (&of)[N], int i) {
#if REGISTERS_HAVE_NO_INDEX
  if constexpr (TEAM == 1 && N <= MOST_PICKED) {
    T picked = of[0];
    UNROLL for (int k = 1; k < N; ++k) picked = k == i ? of[k] : picked;
    return picked;
  }
#endif
  return of[i];
}
// Likewise of[i] = value.
template <class T, int N> DEVICE void put(T (&of)[N], int i, T value) {
#if REGISTERS_HAVE_NO_INDEX
  if constexpr (TEAM == 1 && N <= MOST_PICKED) {
    UNROLL for (int k = 0; k < N; ++k) of[k] = k == i ? value : of[k];
    return;
  }
#endif
  of[i] = value;
}

template <bool FIRST, class A, class B> struct Choose { typedef A type; };
template <class A, class B> struct Choose<false, A, B> { typedef B type; };

// What every Team has, whatever runs it.
struct Member {
  int rank;  // [0, TEAM)

  DEVICE Each each(int n) const { return {rank, n}; }
  // The same, and indices of n or more, so that all members have equally many.
  DEVICE Each all(int n) const { return {rank, (n + TEAM - 1) / TEAM * TEAM}; }
  DEVICE bool leader() const { return TEAM == 1 || rank == 0; }
};
