// draws.cu -- Random words for kernels written in Python: those of `env.random.bits(agent, draw)` in C.
#include "drive/random.cuh"

struct Workspace {};
struct Draws {
  int size;             // N * agents * draws
  int agents, draws;    // of one environment
  int first_env;        // global id of environment 0
  int purpose;          // RESET, DYNAMICS or ACTION
  const u64* seed;      // (1)
  const Clock* clock;   // (N)
  u32* bits;            // (N, agents, draws, 4)
  float* uniform;       // (N, agents, draws, 4), in [0, 1)
};

DEVICE void draw_words(const Draws& call, const int i) {
  const int draw = i % call.draws, agent = i / call.draws % call.agents, e = i / (call.draws * call.agents);
  const Clock clock = call.clock[e];
  Random random{*call.seed, (u32)(call.first_env + e), clock.episode, 0u, (u32)call.purpose};
  if (call.purpose == DYNAMICS) { random.episode -= 1; random.step = (u32)clock.elapsed; }
  if (call.purpose == ACTION) { random.episode = 0; random.step = clock.time / 4; }
  const auto words = random.bits(agent, draw);
  for (int k = 0; k < 4; ++k) {
    call.bits[(i64)i * 4 + k] = words.word(k);
    call.uniform[(i64)i * 4 + k] = Random::unit(words.word(k));
  }
}

#include "drive/launch.cuh"
KERNEL(draw_words, Draws, call.size, draw_words(call, e))
