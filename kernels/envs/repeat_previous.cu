// repeat_previous.cu -- Cards are dealt one by one. The player names the suit of the card K - 1 before the visible one.
//
// Source: Morad, Kortvelesy, Bettini, Liwicki & Prorok (2023), "POPGym", RepeatPrevious.
//
//   state   deck [cards left of each suit], seen [suits, the newest first], answer [last action, -1 before the first]
//   action  a suit: 0 = spades, 1 = diamonds, 2 = clubs, 3 = hearts
//   reward  after K cards, 1 / (NUM_CARDS - K) for the right suit, minus the same for another
struct Params {};
struct State { u32 deck; Array<u32, WORDS> seen; int answer; };
#include "drive/env.cuh"
#include "envs/suits.cuh"

DEVICE void reset(Env& env) {
  const u32 word = env.random.bits(0).x;
  if (!env.team.leader()) return;
  State& s = env.state;
  s.deck = FULL_DECK;
  UNROLL for (int w = 0; w < WORDS; ++w) s.seen[w] = 0;
  push(s.seen, draw_card(s.deck, word));
  s.answer = -1;
}

DEVICE bool step(Env& env) {
  State& s = env.state;
  bool dealt = false;
  if (env.team.leader()) {
    constexpr float REWARD = 1.0f / (float)(NUM_CARDS - K);
    s.answer = env.player.action(0);
    const u32 wanted = s.seen[WORDS - 1] >> 2 * ((K - 1) % 16) & 3u;
    const bool asked = NUM_CARDS - cards_in(s.deck) >= K;
    env.player.reward(0) = asked ? ((u32)s.answer == wanted ? REWARD : -REWARD) : 0.0f;
    push(s.seen, draw_card(s.deck, env.random.bits(0).x));
    dealt = s.deck == 0;
  }
  return dealt;
}

DEVICE void observe(Env& env) {
  if (env.team.leader()) write_suit(env.player.obs(0), 0, env.state.seen[0] & 3u);
}
