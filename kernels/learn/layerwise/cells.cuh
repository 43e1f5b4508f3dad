// cells.cuh -- One unit of a recurrent layer in one step: its gates and its new state. Names and sources: mingru.cu, gru.cu.
#pragma once
#include "learn/functions.cuh"

namespace policy {

struct MinGruUnit {
  float derivative, candidate, update, highway, after;  // derivative: of the candidate. highway: gate

  DEVICE MinGruUnit(const float candidate_at, const float update_at, const float highway_at, const float before) {
    const float squashed = sigmoid(candidate_at);
    candidate = candidate_at >= 0.0f ? candidate_at + 0.5f : squashed;  // mutant(swap >=): both are 0.5 at 0
    derivative = candidate_at >= 0.0f ? 1.0f : squashed * (1.0f - squashed);
    update = sigmoid(update_at);
    highway = sigmoid(highway_at);
    after = math::fma(update, candidate - before, before);
  }
};

struct GruUnit {
  float reset, update, candidate, after;

  // inner: factor of the reset gate. candidate_at: summand of their product.
  DEVICE GruUnit(const float reset_at, const float update_at, const float inner, const float candidate_at, const float before) {
    reset = sigmoid(reset_at);
    update = sigmoid(update_at);
    candidate = hyperbolic_tangent(math::fma(reset, inner, candidate_at));
    after = math::fma(update, before - candidate, candidate);
  }
};

}  // namespace policy
