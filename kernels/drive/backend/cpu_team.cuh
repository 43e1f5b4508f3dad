// cpu_team.cuh -- A team on a CPU: one thread or, for tests with TEAM_THREADS, threads in turn. Also its memory operations.
#pragma once
#ifdef TEAM_THREADS
#include "drive/backend/team_threads.cuh"
#else
struct Team : Member {
  using Member::sum, Member::min, Member::before, Member::add;  // these reject floats
  DEVICE void sync() const {}
  DEVICE void in_step(int) const {}
  DEVICE bool any(bool mine) const { return mine; }
  DEVICE bool sector_any(bool mine, u32) const { return mine; }
  DEVICE u32 sector_lanes() const { return 0; }  // mutant(constant): no lanes on a CPU
  DEVICE bool warp_any(bool mine) const { return mine; }
  DEVICE int sum(int mine) const { return mine; }
  template <class T> DEVICE T min(T mine) const { return mine; }
  DEVICE int before(int mine, int* all) const { *all = mine; return 0; }
  template <int N> DEVICE int add(Array<int, N>& words, int i, int value) const { return (words[i] += value) - value; }
};
#endif

// On a CPU a warp set is a team, which has one environment at a time.
struct WarpSet {
  static constexpr int SIZE = TEAM;
  int rank;

  DEVICE void sync() const { Team{rank}.sync(); }
};
constexpr bool WEIGHTS_IN_SHARED = false;

// One launch ends before the next begins.
DEVICE void await_previous() {}
DEVICE void release_next() {}

template <class Work> DEVICE Work& alone(Work* work) { return *work; }

DEVICE void hold(u32& word) { (void)word; }

DEVICE int lowest_bit(u64 bits) { return __builtin_ctzll(bits); }

// Floats of a vector register.
#ifdef COUNT_OPERATIONS
constexpr int SIDE_FLOATS = 1;
#else
#ifdef __AVX512F__
constexpr int SIDE_FLOATS = 16;
#else
constexpr int SIDE_FLOATS = 8;
#endif
typedef float floats __attribute__((vector_size(4 * SIDE_FLOATS)));
typedef u32 u32s __attribute__((vector_size(4 * SIDE_FLOATS)));
#endif

DEVICE void atomic_min(u64* word, u64 value) {
  u64 before = __atomic_load_n(word, __ATOMIC_RELAXED);
  // mutant(swap <): stores the same value
  while (value < before && !__atomic_compare_exchange_n(word, &before, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

DEVICE void atomic_add(double* sum, double value) {
  double before = *sum, after;
  do after = before + value;
  while (!__atomic_compare_exchange(sum, &before, &after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

template <class T> DEVICE T load_constant(const T* from) { return *from; }

template <class T> DEVICE void store_last(T* to, T value) { *to = value; }

DEVICE void store_record(float* to, float first, int second) {
  to[0] = first;
  memcpy(to + 1, &second, 4);
}

template <int WORDS> DEVICE void copy_words(const Team team, void* to, const void* from) {
#ifdef TEAM_THREADS
  for (int i : team.each(WORDS)) memcpy((char*)to + 4 * i, (const char*)from + 4 * i, 4);
#else
  (void)team;
  if (to != from) memcpy(to, from, 4 * (size_type)WORDS);  // mutant(dropped condition): a copy onto itself
#endif
}
template <int WORDS> DEVICE void store_words(const Team team, void* to, const void* from) { copy_words<WORDS>(team, to, from); }
