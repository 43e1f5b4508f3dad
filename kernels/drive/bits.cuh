// bits.cuh -- Observations of float, uint8 and bool: how `observe` writes a row, and the layout of rows in memory.
//
// Rows of bool are bits in rollouts and bytes (0 or 1) after single steps. Bit k of a row is bit k % 32 of its word k / 32. Bits
// past the last entry are 0. A team of one thread writes a row as bits. Threads of a larger team may write entries of the same row,
// so they write it as bytes, which become bits when the row is stored.
//
// Letters: COUNT agents, OBS entries of one agent's row, WORDS = ceil(OBS / 32).
#pragma once
#include "drive/faults.cuh"

struct Flag {
  u8 value;
  DEVICE void operator=(bool on) { value = on; }
  DEVICE operator bool() const { return value != 0; }
};
struct Bit {
  u32& word;
  u32 mask;
  DEVICE void operator=(bool on) const { word = on ? word | mask : word & ~mask; }
  DEVICE operator bool() const { return (word & mask) != 0; }
};

#ifdef DEBUG_BOUNDS
#define ENTRY(at) (at).within(size, "observation entry")
#else
#define ENTRY(at) (at)
#endif
struct BitRow {
  u32* words;
  int size;
  DEVICE Bit operator[](Index at) const {
    const u32 k = ENTRY(at);
    return {words[k / 32], 1u << k % 32};
  }
};
template <class Entry> struct EntryRow {
  Entry* entries;
  int size;
  DEVICE Entry& operator[](Index at) const { return entries[ENTRY(at)]; }
};

// A row for a centralized critic, `env.NAME.critic_obs(i)`. Where no policy reads it, it is null and drops all entries.
struct CriticEntry {
  float* at;
  DEVICE float operator=(float x) const { if (at != nullptr) *at = x; return x; }
};
struct CriticRow {
  float* entries;
  int size;
  // Whether a policy reads the row. If not, an environment may skip the work for it.
  DEVICE explicit operator bool() const { return entries != nullptr; }
  DEVICE CriticEntry operator[](Index at) const {
    const int k = ENTRY(at);
    return {entries == nullptr ? nullptr : entries + k};
  }
};

// Storage of a group's rows, `Kind::ObsRows`. OnChip: type of an entry in the memory that `observe` writes, ENTRIES per row.
// Global: type of an entry in the arrays of the batch. at(rows, i): agent i's row as `env.NAME.obs(i)`.
template <class Kind> struct FloatRows {
  typedef obs_t OnChip, Global;
  static constexpr int ENTRIES = Kind::OBS;
  static DEVICE Row at(obs_t* rows, const int i) { return ROW(rows + (size_type)i * Kind::OBS, Kind::OWN_OBS); }
};
template <class Kind> struct ByteRows {
  typedef u8 OnChip, Global;
  static constexpr int ENTRIES = Kind::OBS;
  static DEVICE EntryRow<u8> at(u8* rows, const int i) { return {rows + (size_type)i * Kind::OBS, Kind::OBS}; }
};
template <class Kind> struct BoolRows {
  typedef typename Choose<TEAM == 1, u32, Flag>::type OnChip;
  typedef u8 Global;
  static constexpr int ENTRIES = TEAM == 1 ? Kind::WORDS : Kind::OBS;
  static DEVICE BitRow at(u32* rows, const int i) { return {rows + i * ENTRIES, Kind::OBS}; }
  static DEVICE EntryRow<Flag> at(Flag* rows, const int i) { return {rows + i * ENTRIES, Kind::OBS}; }
};

// One environment's rows in the workspace.
template <class Kind> struct OnChipObs {
  alignas(16) typename Kind::ObsRows::OnChip obs[Kind::COUNT * Kind::ObsRows::ENTRIES];
};

// Bytes of one environment's rows in the arrays of a batch.
template <class Kind> DEVICE constexpr size_type global_bytes(const bool packed) {
  if constexpr (Kind::BITS) return packed ? 4 * Kind::COUNT * Kind::WORDS : Kind::COUNT * Kind::OBS;
  else return Kind::COUNT * Kind::OBS * sizeof(typename Kind::ObsRows::Global);
}

// Clear all entries, before `observe` writes rows of bool.
template <class Kind> DEVICE void clear_rows(const Team team, typename Kind::ObsRows::OnChip* on_chip) {
  for (int n : team.each(Kind::COUNT * Kind::ObsRows::ENTRIES)) on_chip[n] = {};
  team.sync();  // zeros are stored before other threads write entries
}

// Word w of a row of OBS entries, and its entry k, in either format.
template <int OBS> DEVICE u32 word_of(const u32* row, const int w) { return row[w]; }
template <int OBS, class Byte> DEVICE u32 word_of(const Byte* row, const int w) {
  u32 word = 0;
  for (int k = 32 * w; k < OBS && k < 32 * w + 32; ++k) word |= (u32)(row[k] != 0) << k % 32;
  return word;
}
DEVICE u32 entry_of(const u32* row, const int k) { return row[k / 32] >> k % 32 & 1u; }
DEVICE u32 entry_of(const Flag* row, const int k) { return row[k].value; }
// Four entries from k on, one byte each. k is a multiple of 4.
DEVICE u32 bytes_of(const u32* row, const int k) { return (row[k / 32] >> k % 32 & 15u) * 0x00204081u & 0x01010101u; }
DEVICE u32 bytes_of(const Flag* row, const int k) {
  return row[k].value | row[k + 1].value << 8 | row[k + 2].value << 16 | row[k + 3].value << 24;
}

// Store rows of bool of `agents` agents, divided among `threads` threads by words or bytes.
template <class Kind>
DEVICE void store_flags(const int rank, const int threads, void* global, const typename Kind::ObsRows::OnChip* on_chip,
                        const int agents, const bool packed) {
  constexpr int OBS = Kind::OBS, WORDS = Kind::WORDS, ENTRIES = Kind::ObsRows::ENTRIES;
  if (packed) {
    for (int n = rank; n < agents * WORDS; n += threads) {
      ((u32*)global)[n] = word_of<OBS>(on_chip + n / WORDS * ENTRIES, n % WORDS);
    }
  } else if constexpr (OBS % 4 == 0) {
    constexpr int FOURS = OBS / 4;
    for (int n = rank; n < agents * FOURS; n += threads) ((u32*)global)[n] = bytes_of(on_chip + n / FOURS * ENTRIES, n % FOURS * 4);
  } else {
    for (int n = rank; n < agents * OBS; n += threads) ((u8*)global)[n] = entry_of(on_chip + n / OBS * ENTRIES, n % OBS);
  }
}

// Store an environment's rows by the whole team.
template <class Kind>
DEVICE void store_obs(const Team team, typename Kind::ObsRows::Global* global, const typename Kind::ObsRows::OnChip* on_chip,
                      [[maybe_unused]] const bool packed) {
  if constexpr (Kind::BITS) store_flags<Kind>(team.rank, TEAM, global, on_chip, Kind::COUNT, packed);
  else copy_obs<Kind::COUNT * Kind::OBS, true>(team, global, on_chip);
}
