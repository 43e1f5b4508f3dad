// rows.cuh -- Write an agent's row of observations, from its first entry to its last.
//
//   RowWriter<SIZE, COUNT> row(env, seen.mine, env.NAME.obs(seen.i));   // struct Shared has a `Stage stage`
//   row.put(x).put(y).put_each([&](int k) { ... })   // COUNT entries. The function may also be called for k >= COUNT
//      .put(time);
//
// On a GPU, a store of 32 lanes to 32 rows is 32 requests to the cache, whose number per second is limited, whatever their size.
// Rows are therefore composed in shared memory, either completely (storage/direct.cuh) or in chunks (storage/staged.cuh). With
// chunks, all threads of a warp must write equally many rows, and `mine` is false for a thread without a row. The index of the next
// entry is part of a writer's type, so that entries are collected in registers until they fill one store. PlainRow is for longer
// rows, and has no such restrictions: any thread may write one at any time.
#pragma once
#include "drive/storage/staged.cuh"

// Whether `mine` holds for any of the threads whose rows are stored together.
// mutant(swap ?): ROWS_STAGED is 0 on a CPU
DEVICE bool rows_any(const Team team, bool mine) { return ROWS_STAGED ? team.warp_any(mine) : mine; }

template <int COUNT> struct PlainRow {
  const Row row;
  int at = 0;

  DEVICE explicit PlainRow(Row row) : row(row) {}
  DEVICE PlainRow& put(float x) { row[at++] = x; return *this; }
  template <class Entry> DEVICE PlainRow& put_each(Entry entry) {
    for (int k = 0; k < COUNT; ++k) row[at + k] = entry(k);
    at += COUNT;
    return *this;
  }
};

#ifdef __CUDACC__
template <int SIZE, int COUNT> struct RowWriter {
  // Number of entries of one store.
  static constexpr int BYTES = SIZE * sizeof(obs_t), ALIGNED = BYTES % 16 == 0 ? 16 : BYTES % 8 == 0 ? 8 : 4;
  static constexpr int ENTRIES = BYTES % 4 == 0 ? ALIGNED / sizeof(obs_t) : 1;
  typedef typename Choose<ALIGNED == 16, int4, typename Choose<ALIGNED == 8, int2, int>::type>::type Word;
  struct alignas(ENTRIES * sizeof(obs_t)) Piece { obs_t entry[ENTRIES]; };
  typedef typename Choose<(ROWS_STAGED && BYTES % 4 == 0), StagedRow<SIZE, Piece, Word>, DirectRow<Piece>>::type Storage;

  Storage storage;
  Piece piece;

  template <int AT> struct Next {
    RowWriter& writer;
    DEVICE Next<AT + 1> put(float x) const { writer.put_at<AT>(x); return {writer}; }
    template <class Entry> DEVICE Next<AT + COUNT> put_each(Entry entry) const {
      writer.put_some<AT, COUNT, 0>(entry);
      return {writer};
    }
  };

  template <class Env> DEVICE RowWriter(Env& env, bool mine, Row row) : storage(env.team, env.shared.stage, mine, row) {}
  DEVICE Next<1> put(float x) { return Next<0>{*this}.put(x); }
  DEVICE void put_zeros() { put_some<0, SIZE, 0>([](int) { return 0.0f; }); }

 private:
  template <int AT> DEVICE void put_at(float x) {
    piece.entry[AT % ENTRIES] = x;
    if constexpr ((AT + 1) % ENTRIES == 0) storage.template put<AT + 1 - ENTRIES>(piece);
  }
  // Recursion by halves, because compilers limit the depth of template instantiation.
  template <int AT, int HOW_MANY, int FIRST, class Entry> DEVICE void put_some(Entry entry) {
    if constexpr (HOW_MANY == 1) {
      put_at<AT + FIRST>(entry(FIRST));
    } else {
      put_some<AT, HOW_MANY / 2, FIRST>(entry);
      put_some<AT, HOW_MANY - HOW_MANY / 2, FIRST + HOW_MANY / 2>(entry);
    }
  }
};
#else
template <int SIZE, int COUNT> struct RowWriter {
  PlainRow<COUNT> row;
  const bool mine;

  template <class Env> DEVICE RowWriter(Env&, bool mine, Row row) : row(row), mine(mine) {}
  DEVICE RowWriter& put(float x) {
    if (mine) row.put(x);
    return *this;
  }
  template <class Entry> DEVICE RowWriter& put_each(Entry entry) {
    if (!mine) return *this;
    float kept[side(COUNT)];  // rounded up to whole vectors, so that the loop is vectorized without a remainder
    for (int k = 0; k < side(COUNT); ++k) kept[k] = entry(k);
    row.put_each([&](int k) INLINED { return kept[k]; });
    return *this;
  }
  DEVICE void put_zeros() {
    for (int n = 0; n < SIZE; ++n) put(0.0f);
  }
};
#endif
