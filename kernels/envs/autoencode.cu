// autoencode.cu -- Cards are dealt one by one. Then the player names the suits of all of them, last card first.
//
// Source: Morad, Kortvelesy, Bettini, Liwicki & Prorok (2023), "POPGym", Autoencode.
//
//   state   deck [cards left of each suit], held [cards on the pile], pile [suits, the newest first],
//           answer [last action, -1 before the first]
//   action  a suit: 0 = spades, 1 = diamonds, 2 = clubs, 3 = hearts. No effect while cards are dealt
//   reward  after the deal, 1 / NUM_CARDS for the suit on top of the pile, minus the same for another
struct Params {};
struct State { u32 deck; int held; Array<u32, WORDS> pile; int answer; };
#include "drive/env.cuh"
#include "envs/suits.cuh"

DEVICE void deal(Env& env) {
  State& s = env.state;
  push(s.pile, draw_card(s.deck, env.random.bits(0).x));
  s.held += 1;
}

DEVICE void pop(State& s) {
  UNROLL for (int w = 0; w < WORDS - 1; ++w) s.pile[w] = s.pile[w] >> 2 | s.pile[w + 1] << 30;
  s.pile[WORDS - 1] = s.pile[WORDS - 1] >> 2;
  s.held -= 1;
}

DEVICE void reset(Env& env) {
  if (!env.team.leader()) return;
  State& s = env.state;
  s.deck = FULL_DECK;
  s.held = 0;
  UNROLL for (int w = 0; w < WORDS; ++w) s.pile[w] = 0;
  s.answer = -1;
  deal(env);
}

DEVICE bool step(Env& env) {
  State& s = env.state;
  bool named = false;
  if (env.team.leader()) {
    constexpr float REWARD = 1.0f / (float)NUM_CARDS;
    s.answer = env.player.action(0);
    if (s.deck != 0) {
      deal(env);
    } else {
      env.player.reward(0) = (u32)s.answer == (s.pile[0] & 3u) ? REWARD : -REWARD;
      pop(s);
      named = s.held == 0;
    }
  }
  return named;
}

// The last card is still visible in the step that asks for it. After that, spades stand for no card.
DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  const State& s = env.state;
  const bool watching = s.deck != 0;
  auto row = env.player.obs(0);
  row[0] = watching ? 1.0f : 0.0f;
  write_suit(row, 1, watching || s.held == NUM_CARDS ? s.pile[0] & 3u : 0u);
}
