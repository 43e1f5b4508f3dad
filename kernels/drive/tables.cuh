// tables.cuh -- read-only arrays that all environments of a device share: `env.table.NAME`. Included where there are some.
//
// `Table` is generated: one TableArray for each table that Python declares, its shape known to the compiler.
#pragma once

template <int> using IndexAlong = Index;  // one index for each length of a shape

// Name is generated, too: what a debug build calls the array whose index is wild.
template <class Name, class T, int... SHAPE> struct TableArray {
  static constexpr int SIZE = (1 * ... * SHAPE);
  const T* data;

  // By a flat index, in C order.
  DEVICE T operator[](Index i) const { return load_constant(data + TABLE_INDEX(i, SIZE)); }
  // By one index for each dimension.
  DEVICE T operator()(IndexAlong<SHAPE>... at) const {
    int flat = 0;
    ((flat = flat * SHAPE + TABLE_INDEX(at, SHAPE)), ...);
    return load_constant(data + flat);
  }
};
#include "generated/tables.cuh"
