// opponents.cu -- Assign snapshots of a policy to environments, and select the actions of those that play.
//
// Snapshots are numbered from 0 in the order in which they were taken. Number n is stored in slot n modulo SLOTS. An episode is
// played by one of the newest SLOTS - 1. The next snapshot overwrites the remaining slot, from which only episodes that began
// earlier may still be played.
// In self-play, one policy has all SIDES groups of the environment. It plays one of them in an episode, and the snapshot plays the
// others. Otherwise SIDES is 1, and the snapshot plays all groups of the policy.
// Letters: N environments, in P of which snapshots may play, C agents, H action heads.
#include "drive/random.cuh"

struct Workspace {};
struct Draw {
  int num_envs;          // P
  int slots;             // SLOTS: one more than the number of snapshots among which one is drawn
  int sides;             // SIDES
  int first_env, agent;  // global ids: of the first of the P environments, of the policy's first agent
  const u64* seed;       // (1)
  const Clock* clock;    // (P), as all below
  const u8* terminated;  // by the previous step
  const u8* truncated;
  const i64* taken;      // (1): snapshots so far
  const int* before;     // opponents of the previous step: slot * SIDES + the policy's own side, or -1 for none
  int* plays;            // opponents of the next step
};

DEVICE void draw_opponent(const Draw& call, const int e) {
  int plays = call.before[e];
  if (call.terminated[e] || call.truncated[e]) {
    const i64 taken = *call.taken;
    const int kept = taken < call.slots ? (int)taken : call.slots - 1;
    const Random random{*call.seed, (u32)(call.first_env + e), call.clock[e].episode - 1, 0, OPPONENT};
    const Random::Bits bits = random.bits(call.agent);
    // Without a snapshot this is -1 % slots, which is -1 in C.
    plays = (int)((taken - 1 - Random::below(bits.x, kept)) % call.slots);
    if (plays >= 0) plays = plays * call.sides + Random::below(bits.y, call.sides);
  }
  call.plays[e] = plays;
}

struct Choice {
  int num_envs, first;     // P, and the number of environments before them
  int slots, words, size;  // SLOTS, C * H, and N * C * H
  int sides, side;         // SIDES, and the side of this group, or -1 if SIDES is 1
  const int* plays;        // (P)
  const u32* own;          // (N, C, H) of 4 bytes: actions of the current policy
  const u32* past;         // (SLOTS, P, C, H): actions of the snapshot in each slot
  u32* action;             // (N, C, H)
};

DEVICE void choose_word(const Choice& call, const int i) {
  const int e = i / call.words - call.first;
  u32 word = call.own[i];
  if (e >= 0 && e < call.num_envs) {
    const int plays = call.plays[e], slot = plays / call.sides;  // checked below: a corrupt checkpoint may have any value
    const size_type row = (size_type)slot * call.num_envs + e;
    if (plays >= 0 && slot < call.slots && plays % call.sides != call.side) word = call.past[row * call.words + i % call.words];
  }
  call.action[i] = word;
}

#include "drive/launch.cuh"
KERNEL(draw_opponents, Draw, call.num_envs, draw_opponent(call, e))
KERNEL(choose_actions, Choice, call.size, choose_word(call, e))
