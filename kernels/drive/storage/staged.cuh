// staged.cuh -- Staged stores of observation rows, each of which one thread writes entry by entry.
//
// Chunks of 128 bytes go through shared memory, a `Stage`, from which the lanes of a warp store them contiguously. A row writer has
// `put<FIRST>(piece)`: the entries from FIRST on, in ascending order.
#pragma once
#include "drive/faults.cuh"

#if defined(__CUDACC__) && TEAM > 1 && OBSERVATIONS == OBS_STAGED
#define ROWS_STAGED 1
struct Stage {
  static constexpr int BYTES = 128;
  // 144 bytes each, so that no two of eight lanes that store 16 bytes at a time touch the same bank.
  struct alignas(16) Lane { char chunk[BYTES]; obs_t* row; } lane[TEAM];
};
#else
#define ROWS_STAGED 0
struct Stage {};
#endif

#ifdef __CUDACC__
// Store each piece separately.
template <class Piece> struct DirectRow {
  const Row row;
  const bool mine;

  DEVICE DirectRow(const Team, Stage&, bool mine, Row row) : row(row), mine(mine) {}
  template <int FIRST> DEVICE void put(const Piece& piece) const {
    if (mine) *(Piece*)(row + FIRST) = piece;
  }
};

#if ROWS_STAGED
template <int SIZE, class Piece, class Word> struct StagedRow {
  static constexpr int ENTRIES = sizeof(Piece) / sizeof(obs_t), CHUNK = Stage::BYTES / sizeof(obs_t);
  const Team team;
  Stage& stage;

  DEVICE StagedRow(const Team team, Stage& stage, bool mine, Row row) : team(team), stage(stage) {
    stage.lane[team.rank].row = mine ? row : nullptr;
  }
  template <int FIRST> DEVICE void put(const Piece& piece) const {
    constexpr int AFTER = FIRST + ENTRIES;
    *(Piece*)(stage.lane[team.rank].chunk + FIRST % CHUNK * sizeof(obs_t)) = piece;
    if constexpr (AFTER % CHUNK == 0 || AFTER == SIZE) store<FIRST / CHUNK * CHUNK>();
  }

 private:
  // Store every lane's chunk, at the entries from BEGIN on.
  template <int BEGIN> DEVICE void store() const {
    constexpr int WIDTH = TEAM < 32 ? TEAM : 32, PIECES = (SIZE - BEGIN < CHUNK ? SIZE - BEGIN : CHUNK) / ENTRIES;
    const int lane = team.rank % WIDTH;
    team.warp_sync();  // chunks are written before other lanes read them
    UNROLL for (int k = 0; k < PIECES; ++k) {
      const int n = k * WIDTH + lane;
      const Stage::Lane& of = stage.lane[team.rank - lane + n / PIECES];
      if (of.row != nullptr) __stcs((Word*)(of.row + BEGIN) + n % PIECES, ((const Word*)of.chunk)[n % PIECES]);
    }
    team.warp_sync();  // chunks are read before they are overwritten
  }
};
#else
template <int SIZE, class Piece, class Word> using StagedRow = DirectRow<Piece>;
#endif
#endif
