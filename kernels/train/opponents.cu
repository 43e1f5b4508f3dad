// opponents.cu -- Assign snapshots of a policy to environments, and select the actions of those that play.
//
// Snapshots are numbered from 0 in the order in which they were taken. Number n is stored in slot n modulo SLOTS. An episode is
// played by one of the newest SLOTS - 1. The next snapshot overwrites the remaining slot, from which only episodes that began
// earlier may still be played.
// Letters: N environments, in P of which snapshots may play, C agents, H action heads.
#include "drive/random.cuh"

struct Workspace {};
struct Draw {
  int num_envs;          // P
  int slots;             // SLOTS: one more than the snapshots of which one is drawn
  int first_env, agent;  // global ids: of the first of the P environments, of the policy's first agent
  const u64* seed;       // (1)
  const Clock* clock;    // (P), as all below
  const u8* terminated;  // by the step before
  const u8* truncated;
  const i64* taken;      // (1): snapshots so far
  const int* before;     // who played the step before: a slot, or -1: the policy as it is
  int* plays;            // who plays the next
};

DEVICE void draw_opponent(const Draw& call, const int e) {
  int plays = call.before[e];
  if (call.terminated[e] || call.truncated[e]) {
    const i64 taken = *call.taken;
    const int kept = taken < call.slots ? (int)taken : call.slots - 1;
    const Random random{*call.seed, (u32)(call.first_env + e), call.clock[e].episode - 1, 0, OPPONENT};
    // Of none it is -1: a remainder has the sign of what is divided.
    plays = (int)((taken - 1 - Random::below(random.bits(call.agent).x, kept)) % call.slots);
  }
  call.plays[e] = plays;
}

struct Choice {
  int num_envs, first;     // P, and how many environments stand before them
  int slots, words, size;  // SLOTS; C * H; words of all N environments
  const int* plays;        // (P)
  const u32* own;          // (N, C, H) of 4 bytes: actions of the policy as it is
  const u32* past;         // (SLOTS, P, C, H): those of each slot
  u32* action;             // (N, C, H)
};

DEVICE void choose_word(const Choice& call, const int i) {
  const int e = i / call.words - call.first;
  u32 word = call.own[i];
  if (e >= 0 && e < call.num_envs) {
    const int slot = call.plays[e];  // a damaged checkpoint may name one that there is not
    const size_type row = (size_type)slot * call.num_envs + e;
    if (slot >= 0 && slot < call.slots) word = call.past[row * call.words + i % call.words];
  }
  call.action[i] = word;
}

#include "drive/launch.cuh"
KERNEL(draw_opponents, Draw, call.num_envs, draw_opponent(call, e))
KERNEL(choose_actions, Choice, call.size, choose_word(call, e))
