// cpu_shared_words.cuh -- words that other threads or processes read and write while a kernel runs on a CPU.
#pragma once
#include <sched.h>
#include <time.h>

template <class Word> DEVICE Word load_relaxed(const Word* from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
template <class Word> DEVICE void store_relaxed(Word* to, const Word word) { __atomic_store_n(to, word, __ATOMIC_RELAXED); }

DEVICE u32 count_up(u32* count) { return __atomic_add_fetch(count, 1u, __ATOMIC_ACQ_REL); }

DEVICE i64 nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (i64)now.tv_sec * 1000000000 + now.tv_nsec;
}

DEVICE void rest() { sched_yield(); }
