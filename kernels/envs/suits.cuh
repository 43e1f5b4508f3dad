// suits.cuh -- A shuffled deck in which only suits matter, for repeat_previous, repeat_first and autoencode.
//
// The deck is not shuffled in advance. Each card is drawn uniformly from those left, which gives the same distribution. Order of
// suits: spades, diamonds, clubs, hearts.
#pragma once

constexpr int SUITS = 4;
constexpr u32 FULL_DECK = NUM_CARDS / SUITS * 0x01010101u;  // cards of each suit, a byte each: 255 at most

DEVICE int cards_in(u32 deck) { return (int)((deck & 255u) + (deck >> 8 & 255u) + (deck >> 16 & 255u) + (deck >> 24)); }

// Take a card that `word` selects out of the deck, which is not empty. Returns its suit.
DEVICE u32 draw_card(u32& deck, u32 word) {
  const int card = Random::below(word, cards_in(deck));
  int first = 0;  // first card of the next suit
  u32 suit = 0;
  UNROLL for (int k = 0; k < SUITS - 1; ++k) {
    first += (int)(deck >> 8 * k & 255u);
    suit += card >= first;
  }
  deck -= 1u << 8 * suit;
  return suit;
}

// Push a suit onto a pile, two bits per card, the newest in the lowest bits of pile[0]. A full pile loses its oldest.
template <int N> DEVICE void push(Array<u32, N>& pile, u32 suit) {
  UNROLL for (int w = N - 1; w > 0; --w) pile[w] = pile[w] << 2 | pile[w - 1] >> 30;
  pile[0] = pile[0] << 2 | suit;
}

DEVICE void write_suit(const Row& row, int first, u32 suit) {
  UNROLL for (int k = 0; k < SUITS; ++k) row[first + k] = suit == (u32)k ? 1.0f : 0.0f;
}
