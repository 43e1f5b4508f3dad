// observed.cuh -- One row of an observation in memory: floats, bits (drive/bits.cuh), bytes, or one-hot encoded bytes.
//
// Generated: OBSERVED, one of the formats below. Without it, rows are floats. Bytes also need OBS_HIGH, their divisor, or
// OBS_VALUES, the number of entries that each one encodes.
#pragma once
#include "generated/spaces.cuh"

#define OBSERVED_FLOATS 0
#define OBSERVED_BITS 1
#define OBSERVED_BYTES 2
#define OBSERVED_ONE_HOT 3
#ifndef OBSERVED
#define OBSERVED OBSERVED_FLOATS
#endif

// entry_of returns entry d of a row as a network sees it. observed_row returns the number of elements in memory of a row.
#if OBSERVED == OBSERVED_BITS
typedef u32 Observed;
DEVICE float entry_of(const Observed* row, const int d) { return (float)(row[d / 32] >> d % 32 & 1u); }
constexpr int observed_row(const int entries) { return (entries + 31) / 32; }
#elif OBSERVED == OBSERVED_BYTES
typedef u8 Observed;
DEVICE float entry_of(const Observed* row, const int d) { return (float)row[d] / OBS_HIGH; }
constexpr int observed_row(const int entries) { return entries; }
#elif OBSERVED == OBSERVED_ONE_HOT
typedef u8 Observed;
DEVICE float entry_of(const Observed* row, const int d) { return row[d / OBS_VALUES] == d % OBS_VALUES ? 1.0f : 0.0f; }
constexpr int observed_row(const int entries) { return entries / OBS_VALUES; }
#else
typedef float Observed;
DEVICE float entry_of(const Observed* row, const int d) { return row[d]; }
constexpr int observed_row(const int entries) { return entries; }
#endif

// Entries of a row that a thread reads at once. Floats are read one by one, so that neighboring threads read neighboring floats.
constexpr int OBS_AT_ONCE = OBSERVED == OBSERVED_FLOATS ? 1 : 8, OBS_ACROSS = (OBS + OBS_AT_ONCE - 1) / OBS_AT_ONCE;
// Call visit(d, entry d) for OBS_AT_ONCE entries from `first` on, which is a multiple of OBS_AT_ONCE.
template <class Visit> DEVICE void each_at_once(const Observed* row, const int first, Visit visit) {
#if OBSERVED == OBSERVED_BITS
  const u32 bits = row[first / 32] >> first % 32;
  UNROLL for (int j = 0; j < OBS_AT_ONCE; ++j) {
    if (OBS % OBS_AT_ONCE == 0 || first + j < OBS) visit(first + j, (bits >> j & 1u) != 0u ? 1.0f : 0.0f);
  }
#else
  UNROLL for (int j = 0; j < OBS_AT_ONCE; ++j) {
    if (OBS % OBS_AT_ONCE == 0 || first + j < OBS) visit(first + j, entry_of(row, first + j));
  }
#endif
}

// Return row `row` of rows with ENTRIES entries.
template <int ENTRIES = OBS> DEVICE const Observed* observed(const void* rows, const size_type row) {
  return (const Observed*)rows + row * observed_row(ENTRIES);
}
