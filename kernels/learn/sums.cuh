// sums.cuh -- sums of many numbers in an order that neither the size of a team nor the device changes: CHAINS chains side by
// side, of which chain c has the c-th number and every CHAINS-th after it, then halves of the chains added to each other.
#pragma once

constexpr int CHAINS = 128;  // a power of two

// of[0] becomes the sum of all, which all members see. Members may have written different ones before.
template <class T> DEVICE void add_halves(const Team team, T (&of)[CHAINS]) {
  for (int half = CHAINS / 2; half > 0; half /= 2) {
    team.sync();
    for (int c : team.each(half)) of[c] += of[c + half];
  }
  team.sync();
}
