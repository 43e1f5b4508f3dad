// rows.cuh -- writes rows of observations that are made by one member each, entry by entry.
//
// On a GPU a store of 32 lanes to 32 rows is 32 requests to the cache, which takes so many a second, short or long. So rows
// go to near memory as a whole (OBS_NEAR, storage/shared.cuh), or 128 bytes at a time through a `Stage`, a member of the
// environment's `struct Shared`, from where the lanes of a warp store them side by side. Elsewhere entries are stored one after
// the other.
#pragma once
#include "drive/faults.cuh"

#if defined(__CUDACC__) && TEAM > 1 && !OBS_NEAR
#define STAGED 1
constexpr bool ROWS_TOGETHER = true;  // all lanes of a warp have to write their rows together
struct Stage {
  static constexpr int BYTES = 128;
  // 144 bytes each: no two of eight lanes that store 16 bytes at a time touch the same bank.
  struct alignas(16) Lane { char chunk[BYTES]; obs_t* row; } lane[TEAM];
};
#else
#define STAGED 0
constexpr bool ROWS_TOGETHER = false;
struct Stage {};
#endif

// Entries are put in the order of their places AT; all lanes of a warp do it together; `mine` says whether this one has a
// row. TOGETHER: several entries at a time; no row is too long to be unrolled.
template <int SIZE, bool TOGETHER> struct RowWriter {
  const Team team;
  Stage& stage;
  const Row row;
  const bool mine;

  DEVICE RowWriter(const Team team, Stage& stage, Row row, bool mine) : team(team), stage(stage), row(row), mine(mine) {
#if STAGED
    if constexpr (WIDE) stage.lane[team.rank].row = mine ? row : nullptr;
#endif
  }

#ifdef __CUDACC__
  static constexpr int BYTES = SIZE * sizeof(obs_t), ALIGNED = BYTES % 16 == 0 ? 16 : BYTES % 8 == 0 ? 8 : 4;
  static constexpr bool WIDE = TOGETHER && BYTES % 4 == 0;
  static constexpr int ENTRIES = WIDE ? ALIGNED / sizeof(obs_t) : 1;  // of a piece
  typedef typename Choose<ALIGNED == 16, int4, typename Choose<ALIGNED == 8, int2, int>::type>::type Word;
  struct alignas(ENTRIES * sizeof(obs_t)) Piece { obs_t entry[ENTRIES]; } piece;

  template <int AT> DEVICE void put(float x) {
    piece.entry[AT % ENTRIES] = x;
    if constexpr (AT % ENTRIES == ENTRIES - 1) {
      constexpr int FIRST = AT - (ENTRIES - 1);  // of the piece
#if STAGED
      if constexpr (WIDE) {
        constexpr int CHUNK = Stage::BYTES / sizeof(obs_t);  // entries
        *(Piece*)(stage.lane[team.rank].chunk + FIRST % CHUNK * sizeof(obs_t)) = piece;
        if constexpr (AT % CHUNK == CHUNK - 1 || AT == SIZE - 1) store<AT / CHUNK * CHUNK>();
        return;
      }
#endif
      if (mine) *(Piece*)(row + FIRST) = piece;
    }
  }

  // Puts entry(k) at AT + k for k of [0, COUNT); in halves of halves, since compilers limit the depth of templates.
  template <int AT, int COUNT, int FIRST = 0, class Entry> DEVICE void put_each(Entry entry) {
    if constexpr (!TOGETHER) {
      for (int k = 0; k < COUNT && mine; ++k) row[AT + k] = entry(k);
    } else if constexpr (COUNT == 1) {
      put<AT + FIRST>(entry(FIRST));
    } else {
      put_each<AT, COUNT / 2, FIRST>(entry);
      put_each<AT, COUNT - COUNT / 2, FIRST + COUNT / 2>(entry);
    }
  }

#if STAGED
  // Stores every lane's chunk, to entries from BEGIN on.
  template <int BEGIN> DEVICE void store() const {
    constexpr int WIDTH = TEAM < 32 ? TEAM : 32, CHUNK = Stage::BYTES / sizeof(obs_t);
    constexpr int PIECES = (SIZE - BEGIN < CHUNK ? SIZE - BEGIN : CHUNK) / ENTRIES;
    const int lane = team.rank % WIDTH;
    team.warp_sync();
    UNROLL for (int k = 0; k < PIECES; ++k) {
      const int n = k * WIDTH + lane;
      const Stage::Lane& of = stage.lane[team.rank - lane + n / PIECES];
      if (of.row != nullptr) __stcs((Word*)(of.row + BEGIN) + n % PIECES, ((const Word*)of.chunk)[n % PIECES]);
    }
    team.warp_sync();
  }
#endif
#else
  template <int AT> DEVICE void put(float x) {
    if (mine) row[AT] = x;
  }
  template <int AT, int COUNT, class Entry> DEVICE void put_each(Entry entry) {
    if (!mine) return;
    if constexpr (TOGETHER) {  // up to side(COUNT), in vector registers
      float kept[side(COUNT)];
      for (int k = 0; k < side(COUNT); ++k) kept[k] = entry(k);
      for (int k = 0; k < COUNT; ++k) row[AT + k] = kept[k];
    } else {
      for (int k = 0; k < COUNT; ++k) row[AT + k] = entry(k);
    }
  }
#endif
};
