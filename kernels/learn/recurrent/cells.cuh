// cells.cuh -- One unit of a recurrent layer in one step: its gates and its new state. Names and sources: mingru.cu, gru.cu.
#pragma once
#include "learn/functions.cuh"

namespace policy {

struct MinGruUnit {
  float slope, fresh, update, shown, after;  // slope: derivative of `fresh`

  DEVICE MinGruUnit(const float candidate, const float update_at, const float shown_at, const float before) {
    const float squashed = sigmoid(candidate);
    fresh = candidate >= 0.0f ? candidate + 0.5f : squashed;  // equal(swap >=): both are 0.5 at 0
    slope = candidate >= 0.0f ? 1.0f : squashed * (1.0f - squashed);
    update = sigmoid(update_at);
    shown = sigmoid(shown_at);
    after = math::fma(update, fresh - before, before);
  }
};

struct GruUnit {
  float reset, update, fresh, after;

  // inner: factor of the reset gate. candidate: summand of their product.
  DEVICE GruUnit(const float reset_at, const float update_at, const float inner, const float candidate, const float before) {
    reset = sigmoid(reset_at);
    update = sigmoid(update_at);
    fresh = hyperbolic_tangent(math::fma(reset, inner, candidate));
    after = math::fma(update, before - fresh, fresh);
  }
};

}  // namespace policy
