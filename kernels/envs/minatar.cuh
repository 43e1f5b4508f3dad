// minatar.cuh -- Sticky actions and the observed cells, for the games of MinAtar.
#pragma once

constexpr int SIDE = 10;  // rows and columns

// Return the action that takes effect, and store it. It is the last one again with the sticky probability. Draw 0 of the random
// stream decides. A game takes its own random numbers from draw 1 on.
DEVICE int effective_action(Env& env) {
  const float sticky = env.params.sticky_action_prob;
  if (sticky > 0.0f && Random::unit(env.random.bits(0).x) < sticky) return env.state.last_action;
  return env.state.last_action = env.player.action(0);
}

// The player's observation: CHANNELS bools for each cell, row by row from the top. All are 0 at first.
struct Cells {
  decltype(Env::player.obs(0)) row;

  DEVICE explicit Cells(Env& env) : row(env.player.obs(0)) {}
  DEVICE void set(int x, int y, int channel) { row[(y * SIDE + x) * CHANNELS + channel] = true; }
  // Bit x of `bits` is column x.
  DEVICE void set_row(int y, int channel, u32 bits) {
    for (u32 left = bits & ((1u << SIDE) - 1u); left != 0; left &= left - 1u) {
      set(math::count_trailing_zeros(left), y, channel);
    }
  }
};

// Eight numbers of 4 bits in a word, the first one lowest.
DEVICE int nibble(u32 word, int k) { return (int)(word >> 4 * k & 15u); }
DEVICE u32 with_nibble(u32 word, int k, int value) { return (word & ~(15u << 4 * k)) | (u32)value << 4 * k; }
