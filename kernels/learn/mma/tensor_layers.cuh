// tensor_layers.cuh -- approximate functions and memory for a tower: what all kernels for tensor cores share.
#pragma once
#define APPROXIMATE 1
#include "learn/mma/bfloat.cuh"
#include "learn/layers.cuh"

// Memory for any one of the towers: Tower<T> is what tower T takes of a block.
template <template <int> class Tower> union AnyTower {
  Tower<0> first;
  Tower<TOWERS - 1> last;
  template <int T> DEVICE Tower<T>& of() {
    if constexpr (T == 0) return first;
    else return last;
  }
};
// Which tower, as an argument.
template <int T> struct TowerNumber {};
