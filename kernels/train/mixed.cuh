// mixed.cuh -- Sample the actions of discrete heads and of a Box together (choices.cuh, boxes.cuh).
//
// A Space has CHOICES, the number of all heads' choices, and a Space for each part: Discrete and Box.
#pragma once
#include "train/choices.cuh"
#include "train/boxes.cuh"

namespace policy {

// Draw the actions of one agent, and call take(head, action, raw) for each head. Discrete heads come first, and their actions are
// integers. Returns the log-probability of all choices plus the log-density of the Box. parameters: CHOICES logits, then means,
// then log standard deviations.
template <class Space, class Take>
DEVICE float draw_mixed(const Random& random, const int agent, const float* parameters, const u8* mask, const bool greedy,
                        Take take) {
  constexpr int DISCRETE = Space::Discrete::HEADS;
  const float of_choices = draw_choices<typename Space::Discrete>(
      random, agent, parameters, mask, greedy,
      [&](int head, int choice, const auto&) INLINED { take(head, (float)choice, (float)choice); });
  return of_choices + draw_from_box<typename Space::Box>(
      random, agent, parameters + Space::CHOICES, greedy,
      [&](int k, float action, float raw) INLINED { take(DISCRETE + k, action, raw); },
      (DISCRETE + 3) / 4);  // the first draw without words of the choices
}

}  // namespace policy
