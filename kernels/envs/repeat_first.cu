// repeat_first.cu -- Cards are dealt one by one. The player names the suit of the first card in every step.
//
// Source: Morad, Kortvelesy, Bettini, Liwicki & Prorok (2023), "POPGym", RepeatFirst.
//
//   state   deck [cards left of each suit], first and card [suits of the first card and of the one shown],
//           answer [last action, -1 before the first]
//   action  a suit: 0 = spades, 1 = diamonds, 2 = clubs, 3 = hearts
//   reward  1 / (NUM_CARDS - 1) for the right suit, minus the same for another
struct Params {};
struct State { u32 deck; int first, card, answer; };
#include "drive/env.cuh"
#include "envs/suits.cuh"

DEVICE void reset(Env& env) {
  const u32 word = env.random.bits(0).x;
  if (!env.team.leader()) return;
  State& s = env.state;
  s.deck = FULL_DECK;
  s.first = s.card = (int)draw_card(s.deck, word);
  s.answer = -1;
}

DEVICE bool step(Env& env) {
  State& s = env.state;
  bool dealt = false;
  if (env.team.leader()) {
    constexpr float REWARD = 1.0f / (float)(NUM_CARDS - 1);
    s.answer = env.player.action(0);
    env.player.reward(0) = s.answer == s.first ? REWARD : -REWARD;
    s.card = (int)draw_card(s.deck, env.random.bits(0).x);
    dealt = s.deck == 0;
  }
  return dealt;
}

DEVICE void observe(Env& env) {
  if (env.team.leader()) write_suit(env.player.obs(0), 0, (u32)env.state.card);
}
