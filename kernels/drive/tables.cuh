// tables.cuh -- Read-only arrays that all environments of a device share: `env.table.NAME`. Included only if there are any.
//
// `Table` is generated: one TableArray for each table that Python declares. The compiler knows its shape.
#pragma once

template <int> using IndexAlong = Index;  // one index for each length of a shape

// Name is also generated: a debug build's name of the array if an index is out of bounds.
template <class Name, class T, int... SHAPE> struct TableArray {
  static constexpr int SIZE = (1 * ... * SHAPE);
  const T* data;

  // Index of the flat array, in C order.
  DEVICE T operator[](Index i) const { return load_constant(data + TABLE_INDEX(i, SIZE)); }
  // One index for each dimension.
  DEVICE T operator()(IndexAlong<SHAPE>... at) const {
    int flat = 0;
    ((flat = flat * SHAPE + TABLE_INDEX(at, SHAPE)), ...);
    return load_constant(data + flat);
  }
};
#include "generated/tables.cuh"
