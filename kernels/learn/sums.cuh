// sums.cuh -- how much work is shared out, and sums of many numbers in an order that neither the size of a team nor the device
// changes: CHAINS chains side by side, of which chain c has the c-th number and every CHAINS-th after it, then halves of the
// chains added to each other.
#pragma once

// Where the k-th of `shares` even shares of n begins: k * n / shares, rounded down, without its 64 bits. shares < 2^15.
DEVICE int share(const int k, const int n, const int shares) {
  const int each = n / shares;
  return k * each + k * (n - each * shares) / shares;
}

constexpr int CHAINS = 128;  // a power of two

// of[0] becomes the sum of the first `used` chains, at least one, which all members see. Members may have written different ones
// before.
template <class T> DEVICE void add_halves(const Team team, T (&of)[CHAINS], const int used) {
  for (int half = CHAINS / 2; half > 0; half /= 2) {
    if (half >= used) continue;
    team.sync();
    for (int c : team.each(used < 2 * half ? used - half : half)) of[c] += of[c + half];
  }
  team.sync();
}
// How many chains n numbers take.
DEVICE int chains_of(const int n) { return n < 1 ? 1 : n < CHAINS ? n : CHAINS; }
