// play.cuh -- env_play: T steps of environments and of the policies that play in them, in one launch.
//
// A warp set is the warps of a block that step their own environments and compute the policy for them: some warps, or one larger
// team. Before each step, all of its threads compute the policies' outputs from observations and weights in shared memory. Then
// teams draw actions, as train/categorical.cu and gaussian.cu do, and step, as phases.cuh does. Results are bitwise identical to
// separate launches of the forward pass, the sampling kernel and env_step, except for a GRU on tensor cores (tensor.cuh).
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "drive/phases.cuh"
#include "generated/agreement.cuh"
#include "train/greedy.cuh"
#include "train/mixed.cuh"
#include "generated/policies.cuh"
#define APPROXIMATE ON_TENSOR_CORES
#include "learn/layerwise/cells.cuh"  // included here because only one file below is compiled

namespace policy {

// N neighboring numbers that are loaded or stored at once.
template <int N> struct alignas(4 * N) MAY_ALIAS Pack { float of[N]; };

}  // namespace policy
#if ON_TENSOR_CORES
#include "play/tensor.cuh"
#else
#include "play/perceptron.cuh"
#endif

static_assert(!OBS_HALF, "env_play does not support half-precision observations");

namespace policy {

// Rows of one group, in addition to those of the batch.
template <class Kind> struct PlayedRows {
  float* raw;       // (T, N, C, HEADS): actions of a Box before squashing, otherwise null
  float* log_prob;  // (T, N, C)
  float* value;     // (T + 1, N, C)
  // For policies with hidden state, otherwise null:
  float* hidden;    // (T + 1, N, C, STATE): in row 0, and after steps that are the last or truncate an episode
  u8* start;        // (T + 1, N, C): from row 1 on, 1 where a step begins an episode
};
struct Play {
  Batch batch;
  int from, until;  // range of steps that this launch takes
  EachGroup<PlayedRows> rows;
  EachPolicy<Source> policies;
};

// Memory of a warp set. A team of one thread has its environment's workspace in registers.
struct Workspaces { Workspace of[ENVS_PER_BLOCK]; };
struct WarpSetMemory {
  EachPolicy<Tile> tiles;
  Choose<TEAM == 1, NoRows, Workspaces>::type work;
};
struct BlockMemory {
  EachPolicy<SharedWeights> weights;
  WarpSetMemory sets[WARP_SETS];
};
template <int THREADS> DEVICE void load_weights(const Play& call, BlockMemory& block, const int thread) {
  each_policy([&](auto, auto& shared, const auto& source) INLINED { load_network<THREADS>(shared, source, thread); }, block.weights,
              call.policies);
}

DEVICE Workspace& workspace_at(Workspaces& work, Workspace&, const int slot) { return work.of[slot]; }
DEVICE Workspace& workspace_at(NoRows&, Workspace& own, const int) { return own; }

// Random words of the first four heads of a thread's agents. They do not depend on the policies, so a GPU can compute them during
// the forward pass.
template <class Kind> struct PrefetchedRandom {
  static constexpr int OWN = own_count(Kind::COUNT);
  // mutant(swap <=): speed only. mutant(swap &&): more work, same result
  static constexpr bool ANY = OWN <= FEW_OWN && !PolicyOf<Kind>::Network::GAUSSIAN;
  Random::Bits of_own[ANY ? OWN : 1];
};
// The words of `random`. The first one is prefetched.
struct RandomWords {
  const Random& random;
  const Random::Bits& first;

  DEVICE Random::Bits bits(const u32 agent, const u32 draw) const { return draw == 0 ? first : random.bits(agent, draw); }
};

struct PlayPhases : TeamPhases<false> {
  typedef TeamPhases<false> Base;
  const Play& call;
  WarpSetMemory& shared;
  const EachPolicy<SharedWeights>& weights;
  EachGroup<PrefetchedRandom>& prefetched;
  const int slot;  // index of this environment in its warp set

  DEVICE PlayPhases(const Play& call, const Team team, Workspace& work, const int e, Env& env, EachGroup<OwnRows>& own,
                    OnChipState& start, const Observations& observations, const Clock& clock, WarpSetMemory& shared,
                    const EachPolicy<SharedWeights>& weights, EachGroup<PrefetchedRandom>& prefetched, const int slot)
      : Base(call.batch, team, work, e, 0, env, own, start, observations, clock), call(call), shared(shared), weights(weights),
        prefetched(prefetched), slot(slot) {}

  // Return the random stream of the next step's actions.
  DEVICE Random words() const { return {env.random.seed, env.random.env, clock.episode - 1, (u32)clock.elapsed, POLICY}; }

  DEVICE void prefetch_random() {
    each_group([&](auto kind, auto& of_group) INLINED {
      typedef PrefetchedRandom<decltype(kind)> Here;
      if constexpr (Here::ANY) {
        UNROLL for (int k = 0; k < Here::OWN; ++k) {
          of_group.of_own[k] = words().bits(kind.FIRST_AGENT + team.rank + k * TEAM, 0);
        }
      }
    }, prefetched);
  }

  // Return the row of agent i in its policy's tile.
  template <class Kind> DEVICE int tile_row(const int i) const {
    return slot * PolicyOf<Kind>::Network::AGENTS + PolicyOf<Kind>::FIRST + i;
  }

  // Store rows of observations where the policy reads them. Each thread stores those of its own agents.
  template <class Kind> DEVICE void load_observation(Kind kind, const obs_t* rows) {
    const auto& own = policy_part(kind, weights);
    const auto& source = policy_part(kind, call.policies);
    FOR_OWN(team, k, i, Kind::COUNT) {
      auto* const input = policy_part(kind, shared.tiles).observation(tile_row<Kind>(i));
      // Unroll fully if entries are few: registers of a thread cannot be indexed.
      UNROLL_TIMES(Kind::OBS <= (TEAM == 1 ? 64 : 16) ? Kind::OBS : 4)
      for (int d = 0; d < Kind::OBS; ++d) input[d] = normalize_entry(own, source, rows[i * Kind::OBS + d], d);
    }
  }

  // Call visit(numbers of an agent's hidden state, the same numbers in row `row` of stored states) for this thread's agents, with
  // one or four numbers at a time.
  template <class Kind, class Visit>
  DEVICE void each_state(Kind, const PlayedRows<Kind>& played, const size_type row, Visit visit) {
    typedef typename PolicyOf<Kind>::Network Network;
    constexpr int WIDE = Network::SIZE % 4 == 0 ? 4 : 1;
    FOR_OWN(team, k, i, Kind::COUNT) {
      float* const stored = played.hidden + (row * Kind::COUNT + i) * Network::STATE;
      UNROLL_TIMES(4) for (int n = 0; n < Network::STATE; n += WIDE) {
        visit(*(Pack<WIDE>*)policy_part(Kind{}, shared.tiles).state(tile_row<Kind>(i), n), *(Pack<WIDE>*)(stored + n));
      }
    }
  }
  template <class Visit> DEVICE void each_group_with_state(Visit visit) {
    each_group([&](auto kind, const auto& played) INLINED {
      if constexpr (PolicyOf<decltype(kind)>::Network::STATE > 0) visit(kind, played);
    }, call.rows);
  }
  // Load the hidden state before this launch's first step.
  DEVICE void load_hidden() {
    const size_type begin = (size_type)call.from * batch.num_envs + e;
    each_group_with_state([&](auto kind, const auto& played) INLINED {
      const bool starts = played.start[begin * kind.COUNT] != 0;  // all agents start together
#if HIDDEN_IN_SHARED
      each_state(kind, played, begin, [&](auto& here, const auto& there) INLINED {
        if (starts) here = {};
        else here = there;
      });
#else
      mark_starts(kind, starts);
#endif
    });
  }
  // After step t: store the hidden state where it is needed, and reset it where the episode is over.
  DEVICE void store_hidden() {
    each_group_with_state([&](auto kind, const auto& played) INLINED {
      const size_type next = row + batch.num_envs;
      FOR_OWN(team, k, i, kind.COUNT) played.start[next * kind.COUNT + i] = over;
#if HIDDEN_IN_SHARED
      if (t + 1 == call.until || (!HORIZON_ENDS_TASK && over && !ended)) {
        each_state(kind, played, next, [](const auto& here, auto& there) INLINED { there = here; });
      }
      if (over) each_state(kind, played, next, [](auto& here, const auto&) INLINED { here = {}; });
#else
      mark_starts(kind, over);
#endif
    });
  }
#if !HIDDEN_IN_SHARED
  template <class Kind> DEVICE void mark_starts(Kind kind, const bool starts) {
    FOR_OWN(team, k, i, Kind::COUNT) policy_part(kind, shared.tiles).hidden.starts[tile_row<Kind>(i)] = starts;
  }
  // Before step `of_step`, by one thread: set the addresses of the warp set's states, from `first_env` on. A policy plays one
  // group.
  DEVICE void set_pointers(const int of_step, const int first_env) {
    each_group_with_state([&](auto kind, const auto& played) INLINED {
      auto& hidden = policy_part(kind, shared.tiles).hidden;
      constexpr int NUMBERS = kind.COUNT * PolicyOf<decltype(kind)>::Network::STATE;
      hidden.before = played.hidden + ((size_type)of_step * batch.num_envs + first_env) * NUMBERS;
      hidden.after =
          of_step < batch.steps ? played.hidden + ((size_type)(of_step + 1) * batch.num_envs + first_env) * NUMBERS : nullptr;
    });
  }
#endif

  // Load state and observations. Row -1 is the last row of the previous rollout, which is still in its place.
  DEVICE void load() {
    Base::load(call.from);
    const bool carries = call.from == 0;
    each_group([&](auto kind, const auto& rows) INLINED {
      const i64 first = e - batch.num_envs, last = (i64)((carries ? batch.steps : call.from) - 1) * batch.num_envs + e;
      constexpr int ENTRIES = kind.COUNT * kind.OBS;
      load_observation(kind, rows.obs + last * ENTRIES);
      if (!carries) return;
      copy_obs<ENTRIES, false>(team, rows.obs + first * ENTRIES, rows.obs + last * ENTRIES);
      if constexpr (kind.MASKED) {
        constexpr int BYTES = kind.COUNT * kind.CHOICES;
        for (int n : team.each(BYTES)) rows.action_mask[first * BYTES + n] = rows.action_mask[last * BYTES + n];
      }
    }, batch.rows);
    load_hidden();
    team.sync();  // state and observations are loaded before they are read; mutant(dropped sync): `play` syncs the warp set, too
  }

  DEVICE void fetch_actions(const int of_step) {
    Base::fetch_actions(of_step);
    const Random random = words();
    each_group([&](auto kind, auto& group, const auto& rows, auto& on_chip_rows, const auto& played, const auto& of_group) INLINED {
      // The step reads actions from shared memory, if rows are there. A load from global memory would take longer than the step.
      if constexpr (ROWS_ON_CHIP) group.action_row = on_chip_rows.action;
      draw(kind, random, rows, on_chip_rows, played, of_group);
    }, env, batch.rows, work.rows, call.rows, prefetched);
  }

  // Return the mask of agent i for the observations before the step of row `at`, or null.
  template <class Kind> DEVICE const u8* mask_of(const GroupRows<Kind>& rows, const size_type at, const int i) const {
    if constexpr (Kind::MASKED) return rows.action_mask + (((i64)at - batch.num_envs) * Kind::COUNT + i) * Kind::CHOICES;
    else return nullptr;
  }
  // Return the value of the same observations: the critic's, or the largest value of an allowed action.
  template <class Kind>
  DEVICE float value_of(const Tile<typename PolicyOf<Kind>::Network>& tile, const GroupRows<Kind>& rows, const size_type at,
                        const int i) const {
    if constexpr (PolicyOf<Kind>::Network::GREEDY) {
      return ActionValues<Kind::CHOICES>(tile.parameters(tile_row<Kind>(i)), mask_of<Kind>(rows, at, i)).top;
    } else {
      return tile.value(tile_row<Kind>(i));
    }
  }

  // Draw the actions of this thread's agents, and store actions, log-probabilities and values.
  template <class Kind, class OnChip>
  DEVICE void draw(Kind kind, const Random& random, const GroupRows<Kind>& rows, OnChip& on_chip_rows,
                   const PlayedRows<Kind>& played, const PrefetchedRandom<Kind>& of_group) {
    typedef typename PolicyOf<Kind>::Network Network;
    const Tile<Network>& tile = policy_part(kind, shared.tiles);
    FOR_OWN(team, k, i, Kind::COUNT) {
      const size_type at = row * Kind::COUNT + i;
      const float* const parameters = tile.parameters(tile_row<Kind>(i));
      const int agent = Kind::FIRST_AGENT + i;
      const auto take = [&](const int head, const typename Kind::Action action) INLINED {
        rows.action[at * Kind::HEADS + head] = action;
        if constexpr (ROWS_ON_CHIP) on_chip_rows.action[i * Kind::HEADS + head] = action;
      };
      [[maybe_unused]] const u8* const mask = mask_of<Kind>(rows, row, i);
      // Draw by the distribution of the network's outputs: epsilon-greedy, Gaussian with or without discrete heads, or categorical.
      if constexpr (Network::GREEDY) {
        const ActionValues<Kind::CHOICES> values(parameters, mask);
        const float epsilon = *policy_part(kind, call.policies).epsilon;
        const int action = values.draw(random, agent, false, epsilon);
        take(0, action);
        played.log_prob[at] = parameters[action];
      } else if constexpr (Network::GAUSSIAN) {
        const auto take_both = [&](int head, float action, float raw) INLINED {
          played.raw[at * Kind::HEADS + head] = raw;
          take(head, action);
        };
        if constexpr (Network::DISCRETE) {
          played.log_prob[at] = draw_mixed<Network>(random, agent, parameters, mask, false, take_both);
        } else {
          played.log_prob[at] = draw_from_box<Network>(random, agent, parameters, false, take_both);
        }
      } else {
        const auto take_one = [&](int head, int action, const auto&) INLINED { take(head, action); };
        if constexpr (PrefetchedRandom<Kind>::ANY) {
          const RandomWords words{random, of_group.of_own[k]};
          played.log_prob[at] = draw_choices<Network>(words, agent, parameters, mask, false, take_one);
        } else {
          played.log_prob[at] = draw_choices<Network>(random, agent, parameters, mask, false, take_one);
        }
      }
      played.value[at] = value_of<Kind>(tile, rows, row, i);
    }
  }

  DEVICE void observe(const View view) {
    Base::observe(view);
    if (view == NEXT) each_group([&](auto kind, const auto& group) INLINED { load_observation(kind, group.obs_row); }, env);
  }

  // Store the values after the last step.
  DEVICE void store_values() {
    const size_type last = (size_type)call.until * batch.num_envs + e;
    each_group([&](auto kind, const auto& rows, const auto& played) INLINED {
      FOR_OWN(team, k, i, kind.COUNT) {
        played.value[last * kind.COUNT + i] = value_of<decltype(kind)>(policy_part(kind, shared.tiles), rows, last, i);
      }
    }, batch.rows, call.rows);
  }
};

// Take all steps of ENVS_PER_BLOCK environments, from `first` on, by one warp set.
DEVICE void play(const Play& call, const WarpSet warps, BlockMemory& block, const int number, const int first) {
  const Batch& batch = call.batch;
  WarpSetMemory& shared = block.sets[number];
  const int slot = warps.rank / TEAM;
  const bool mine = slot < ENVS_PER_BLOCK;  // whether this thread steps an environment, in addition to the warp set's work
  const int e = first + (mine ? slot : 0);  // mutant(constant): a CPU's warp set has one environment
  // Set up the environment and its phases.
  const Team team{warps.rank % TEAM};
  Workspace of_thread;
  Workspace& work = workspace_at(shared.work, of_thread, mine ? slot : 0);
  const Observations observations(team, batch.rows, work.obs, e, batch.num_envs);
  const Clock clock = batch.clock[e];
  MAKE_ENV(clock, on_chip_cache(work.cache, batch.cache[e]));
  EachGroup<OwnRows> own;
  OnChipState start;
  EachGroup<PrefetchedRandom> prefetched;
  PlayPhases phases(call, team, work, e, env, own, start, observations, clock, shared, block.weights, prefetched, slot);
  // Initialize the tiles, and load states and observations.
  each_policy([&](auto, auto& tile) INLINED { begin_tile(warps, tile); }, shared.tiles);
  if (mine) phases.load();  // mutant(dropped condition): a CPU's warp set has one environment
  for (int t = call.from; t <= call.until; ++t) {  // the additional iteration computes the values after the last step
#if !HIDDEN_IN_SHARED
    if (warps.rank == 0) phases.set_pointers(t, first);
#endif
    warps.sync();  // observations and states are written before the forward pass reads them
    // Compute the policies. The random bits of the actions are prefetched meanwhile.
    phases.prefetch_random();
    each_policy([&](auto, auto& tile, auto& weights, const auto& source) INLINED { forward(warps, tile, weights, source); },
                shared.tiles, block.weights, call.policies);
    warps.sync();  // the policies' outputs are written before actions are drawn from them
    // Draw actions, and step.
    if (mine && t < call.until) {
      take_step(phases, t);
      phases.store_hidden();
    }
  }
  if (mine) {
    phases.store_values();
    phases.store();
  }
}

}  // namespace policy

#define BLOCK_BYTES sizeof(policy::BlockMemory)
#include "drive/launch.cuh"
KERNEL_OF_WARP_SETS(env_play, policy::Play, call.batch.num_envs, policy::BlockMemory,
                    policy::load_weights<threads>(call, block, thread), policy::play(call, warps, block, number, first))
