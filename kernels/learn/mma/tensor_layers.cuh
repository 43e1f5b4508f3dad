// tensor_layers.cuh -- Approximate functions and memory of a tower, shared by all kernels for tensor cores.
#pragma once
#define APPROXIMATE 1
#include "learn/mma/bfloat.cuh"
#include "learn/layers.cuh"

// Memory for either tower. Tower<T> is the memory of tower T in a block.
template <template <int> class Tower> union AnyTower {
  Tower<0> first;
  Tower<TOWERS - 1> last;
  template <int T> DEVICE Tower<T>& of() {
    if constexpr (T == 0) return first;
    else return last;
  }
};
// A tower's number, as an argument.
template <int T> struct TowerNumber {};
