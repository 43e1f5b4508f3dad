// concentration.cu -- Turn over CARDS hidden cards in search of pairs, as POPGym's Concentration.
//
//   state   deck [BITS bits for each card: its kind], up [one bit for each card that is matched and stays face up],
//           first, second: cards of this turn, or of the last one [-1 = none], held: whether the first waits for the second
//   action  the card to turn over
//   reward  1 / pairs for a match, 0 for the first card of a turn. Otherwise -1 / (2 CARDS) per card of the turn: two kinds, the
//           same card twice, or a card that is face up, which ends the turn
struct Params {};
struct State { Array<u32, WORDS> deck; Array<u32, UP_WORDS> up; int first, second, held; };
#include "drive/env.cuh"

constexpr int PER_WORD = 32 / BITS, COUNT_BITS = 64 / KINDS;
constexpr float MATCH = 2.0f / (float)CARDS, FAILURE = -0.5f / (float)CARDS;

DEVICE int kind_of(const State& s, int card) {
  const u32 word = s.deck[card / PER_WORD];
  return (int)(word >> (card % PER_WORD * BITS) & ((1u << BITS) - 1u));
}
DEVICE bool is_up(const State& s, int card) { return (s.up[card / 32] >> (card % 32) & 1u) != 0; }
DEVICE void turn_up(State& s, int card) { s.up[card / 32] = s.up[card / 32] | 1u << (card % 32); }

// Number of cards of a kind that are left. One word has the numbers of all kinds.
DEVICE int count_of(u64 left, int kind) { return (int)(left >> (kind * COUNT_BITS) & ((1ull << COUNT_BITS) - 1)); }

// Deal card by card, each uniformly from those that are left.
DEVICE void reset(Env& env) {
  if (!env.team.leader()) return;
  State& s = env.state;
  for (int w = 0; w < WORDS; ++w) s.deck[w] = 0u;
  for (int w = 0; w < UP_WORDS; ++w) s.up[w] = 0u;
  s.first = s.second = -1;
  s.held = 0;
  u64 left = 0;
  for (int kind = 0; kind < KINDS; ++kind) left |= (u64)(CARDS / KINDS) << (kind * COUNT_BITS);
  for (int card = 0; card < CARDS; ++card) {
    int kind = 0, drawn = Random::below(env.random.bits(card / 4).word(card), CARDS - card);
    while (drawn >= count_of(left, kind)) drawn -= count_of(left, kind++);
    left -= 1ull << (kind * COUNT_BITS);
    s.deck[card / PER_WORD] = s.deck[card / PER_WORD] | (u32)kind << (card % PER_WORD * BITS);
  }
}

DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  State& s = env.state;
  const int card = env.player.action(0);
  const bool up = is_up(s, card);
  // First card of a turn.
  if (s.held == 0) {
    s.first = card;
    s.second = -1;
    s.held = !up;
    if (up) env.player.reward(0) = FAILURE;
    return false;
  }
  // Second card: a failure, or a match.
  s.second = card;
  s.held = 0;
  if (up || card == s.first || kind_of(s, card) != kind_of(s, s.first)) {
    env.player.reward(0) = 2.0f * FAILURE;
    return false;
  }
  turn_up(s, s.first);
  turn_up(s, card);
  env.player.reward(0) = MATCH;
  env.metrics.pairs += 1;
  int matched = 0;
  for (int w = 0; w < UP_WORDS; ++w) matched += math::popcount(s.up[w]);
  return matched == CARDS;
}

// The kind of each card, one-hot. A card that is face down has kind KINDS.
DEVICE void observe(Env& env) {
  const State& s = env.state;
  auto row = env.player.obs(0);
  for (int card : env.team.each(CARDS)) {
    const int shown = is_up(s, card) || card == s.first || card == s.second ? kind_of(s, card) : KINDS;
    for (int k = 0; k <= KINDS; ++k) row[card * (KINDS + 1) + k] = k == shown ? 1.0f : 0.0f;
  }
}
