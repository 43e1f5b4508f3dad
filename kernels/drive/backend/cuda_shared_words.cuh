// cuda_shared_words.cuh -- words of an NVIDIA GPU that other GPUs and the host read and write while a kernel runs.
#pragma once

// Reads or writes a word at once and past all caches of this GPU's processors. Nothing is said about the order of what else is
// read or written: "memory" is not clobbered, so that other loads may pass.
DEVICE u32 load_relaxed(const u32* from) {
  u32 word;
  asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
}
DEVICE u64 load_relaxed(const u64* from) {
  u64 word;
  asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(word) : "l"(from));
  return word;
}
DEVICE void store_relaxed(u32* to, const u32 word) { asm volatile("st.relaxed.sys.u32 [%0], %1;" : : "l"(to), "r"(word)); }
DEVICE void store_relaxed(u64* to, const u64 word) { asm volatile("st.relaxed.sys.u64 [%0], %1;" : : "l"(to), "l"(word)); }

// Adds 1 to a count that threads of this device alone add to; returns what it is then.
DEVICE u32 count_up(u32* count) { return atomicAdd(count, 1u) + 1u; }

// Time on some clock, in ns.
DEVICE i64 nanoseconds() {
  i64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Leaves the processor to others for a moment.
DEVICE void rest() { __nanosleep(200); }
