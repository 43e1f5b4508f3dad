// take.cu -- Initial data of a minibatch's whole sequences: the steps where episodes start, and the states before the first step.
// Constants: those of sequences.cuh, STATE (numbers of an agent's hidden state).
// call: kernel arguments (drive/launch.cuh).
#include "learn/layerwise/sequences.cuh"

struct Workspace {};

struct Take {
  Learn learn;
  u8* start;       // rows: 1 where an episode starts
  float* first;    // (sequences, STATE)
  const u8* start_of[AGENT_GROUPS];     // (T + 1, N, C)
  const float* first_of[AGENT_GROUPS];  // (N, C, STATE)
};

DEVICE void take_sequences(const Take& call, const Team team, const int block) {
  const Sequences of(call.learn, block);
  if (*call.learn.skip > 0.0f) return;  // mutant(constant): it is 0 or 1
  for (int i : team.each(of.rows())) {
    const int t = i / of.count, s = i - t * of.count;
    const RowIndex place = of.place(t, s);
    call.start[of.row(t, s)] = call.start_of[place.group][place.row];
  }
  for (int i : team.each(of.count * STATE)) {
    const int s = i / STATE, k = i - s * STATE;
    const RowIndex place = of.place(0, s);
    call.first[(size_type)(of.first + s) * STATE + k] = call.first_of[place.group][(size_type)place.row * STATE + k];
  }
}

#include "drive/launch.cuh"
KERNEL(take, Take, call.learn.blocks, take_sequences(call, team, e))
