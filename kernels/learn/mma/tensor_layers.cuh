// tensor_layers.cuh -- what all kernels for matrix units take of layers: memory for a tower, and the activation.
// Constants: those of layers.cuh.
#pragma once
#define APPROXIMATE 1
#include "learn/functions.cuh"
#include "learn/mma/bfloat.cuh"
#include "learn/layers.cuh"
#include "learn/neuron.cuh"

using policy::seen;

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

DEVICE float activate(float x) {
  if constexpr (RELU) return x < 0.0f ? 0.0f : x;  // keeps NaN; equal(swap <): the result is 0 either way
  else return hyperbolic_tangent(x);
}

// The activation's derivative, from its result.
DEVICE float slope_of(float y) {
  if constexpr (RELU) return y > 0.0f ? 1.0f : 0.0f;
  else return math::fma(-y, y, 1.0f);
}
