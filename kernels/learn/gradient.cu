// gradient.cu -- gradients of PPO's and A2C's losses over minibatches, and what they need to know of them first.
//
// Source of the losses: cupydrive/training/algorithms/ppo.py and a2c.py.
//
// B blocks share the N environments: block b has those of [b N / B, (b + 1) N / B), whatever runs them. Each permutes its own
// rows, (T, its environments, agents) of all groups that share the policy, and gives the m-th part of them to minibatch m: a
// stratified shuffle. A chunk, the rows of one block in one minibatch, is summed over in the order of its rows; sums of chunks
// are added within P parts of neighbouring blocks, then part after part (update.cu). So bits depend on N, T and the number of
// minibatches alone. Letters: T steps, N environments, R rows of all groups; E epochs, M minibatches of each.
// Constants: those of network.cuh and of the distribution; AGENT_GROUPS; SHUFFLED (0: rows stay in their order);
// CLIPPED (1: PPO's objective, 0: A2C's), CLIP_VALUE, NORMALIZE (advantages). The text generated for them defines
// GAUSSIAN as 0 or 1.
#include "train/cipher.cuh"
#include "learn/network.cuh"
#if GAUSSIAN
#include "learn/gaussian.cuh"
#else
#include "learn/categorical.cuh"
#endif

// Of one minibatch; all floats.
struct Moments {
  float inverse;   // one over its rows in the game, at least 1
  float mean;      // of their advantages
  float divisor;   // their deviation, and a little more
  float count;     // of its rows in the game
};

struct Learn {
  int num_envs, steps, blocks, pieces;   // N, T, B; pieces: into how many parts of neighbouring blocks this launch divides them
  int epochs, minibatches, epoch, minibatch;  // E, M; which
  int agents[AGENT_GROUPS];           // of each group
  const u64* seed;                    // (1)
  const i64* iteration;               // (1)
  const float* clip_coef;             // (1)
  const float* ent_coef;              // (1)
  const float* vf_coef;               // (1)
  const float* skip;                  // (1): 1: there is nothing to learn
  const float* center;                // (OBS) or null: observations are normalised
  const float* scale;                 // (OBS)
  const float* copies;                // the network's weights, as network.cuh has them
  int* order;                         // (E, R): rows of the blocks, one after the other, as they are to be learnt from
  int* counts;                        // (E, M, B): rows in the game, of each chunk
  float* sums;                        // (E, M, B): of their advantages
  float* squares;                     // (E, M, B): of what their advantages differ from the minibatch's mean
  Moments* moments;                   // (E, M)
  float* chunks;                      // (pieces, GRADIENT_FLOATS): memory for one chunk
  float* partials;                    // (pieces, GRADIENT_FLOATS)
  const float* obs[AGENT_GROUPS];       // (T, N, C, OBS)
  const void* action[AGENT_GROUPS];     // (T, N, C, HEADS) int, or float before squashing
  const u8* mask[AGENT_GROUPS];         // (T, N, C, CHOICES) or null
  const u8* active[AGENT_GROUPS];       // (T, N, C) or null: in the game before the step
  const float* log_prob[AGENT_GROUPS];  // (T, N, C), as all below
  const float* value[AGENT_GROUPS];
  const float* advantage[AGENT_GROUPS];
  const float* returns[AGENT_GROUPS];

  DEVICE int first_env(int b) const { return (int)((i64)b * num_envs / blocks); }
  DEVICE int rows_of_env() const {
    int sum = 0;
    for (int g = 0; g < AGENT_GROUPS; ++g) sum += agents[g];
    return sum * steps;
  }
  // Where the part of minibatch m begins among n rows.
  DEVICE int part(int m, int n) const { return (int)((i64)m * n / minibatches); }
  DEVICE int* epoch_order(int which) const { return order + (size_type)which * rows_of_env() * num_envs; }
  DEVICE size_type chunk(int which_epoch, int m, int b) const { return ((size_type)which_epoch * minibatches + m) * blocks + b; }
};

// A row of all groups, one after the other: which group's it is, and its place in the arrays of that group.
struct Place {
  int group, row;
  DEVICE Place(const Learn& call, int at) : group(0), row(at) {
    for (; group < AGENT_GROUPS - 1; ++group) {
      const int rows = call.steps * call.num_envs * call.agents[group];
      if (row < rows) break;
      row -= rows;
    }
  }
  DEVICE bool in_game(const Learn& call) const { return call.active[group] == nullptr || call.active[group][row]; }
};

struct Workspace {
  Tile tile;
  int row[TILE];               // places of the tile's rows in `order`'s terms
  float metric[TILE][METRICS];
};

// ---- which rows, and the moments of their advantages ----

// The j-th row of block b, as `Place` takes it.
DEVICE int row_of_block(const Learn& call, const int b, int j) {
  const int first = call.first_env(b), envs = call.first_env(b + 1) - first;
  int before = 0, agents = call.agents[0];
  for (int g = 0; g < AGENT_GROUPS - 1; ++g) {
    const int rows = call.steps * envs * agents;
    if (j < rows) break;
    j -= rows;
    before += call.steps * call.num_envs * agents;
    agents = call.agents[g + 1];
  }
  const int t = j / (envs * agents);
  return before + (t * call.num_envs + first) * agents + j - t * envs * agents;
}

// Element e: block e % B in epoch e / B. Fills `order`, `counts` and `sums`.
DEVICE void arrange_block(const Learn& call, const Team team, const int e) {
  const int epoch = e / call.blocks, b = e - epoch * call.blocks;
  const int begin = call.first_env(b) * call.rows_of_env(), rows = call.first_env(b + 1) * call.rows_of_env() - begin;
  int* const order = call.epoch_order(epoch) + begin;
  const Random random{*call.seed, (u32)*call.iteration, (u32)(*call.iteration >> 32), (u32)epoch, SHUFFLE};
  const Cipher cipher(rows, random, (u32)b, 2);
  for (int j : team.each(rows)) order[j] = row_of_block(call, b, SHUFFLED ? cipher.of(j) : j);
  team.sync();
  for (int m : team.each(call.minibatches)) {
    int count = 0;
    float sum = 0.0f;
    for (int j = call.part(m, rows); j < call.part(m + 1, rows); ++j) {
      const Place place(call, order[j]);
      if (!place.in_game(call)) continue;
      count += 1;
      sum += call.advantage[place.group][place.row];
    }
    call.counts[call.chunk(epoch, m, b)] = count;
    call.sums[call.chunk(epoch, m, b)] = sum;
  }
}

// Element e: minibatch e of all epochs. Fills what `counts` and `sums` say of it.
DEVICE void find_mean(const Learn& call, const int e) {
  int count = 0;
  float sum = 0.0f;
  for (int b = 0; b < call.blocks; ++b) {
    count += call.counts[(size_type)e * call.blocks + b];
    sum += call.sums[(size_type)e * call.blocks + b];
  }
  const float least = (float)(count < 1 ? 1 : count);
  call.moments[e] = {1.0f / least, sum / least, 1.0f, (float)count};
}

// Element e: block e % B in epoch e / B. Fills `squares`.
DEVICE void spread_block(const Learn& call, const Team team, const int e) {
  const int epoch = e / call.blocks, b = e - epoch * call.blocks;
  const int begin = call.first_env(b) * call.rows_of_env(), rows = call.first_env(b + 1) * call.rows_of_env() - begin;
  const int* const order = call.epoch_order(epoch) + begin;
  for (int m : team.each(call.minibatches)) {
    const float mean = call.moments[epoch * call.minibatches + m].mean;
    float sum = 0.0f;
    for (int j = call.part(m, rows); j < call.part(m + 1, rows); ++j) {
      const Place place(call, order[j]);
      if (!place.in_game(call)) continue;
      const float apart = call.advantage[place.group][place.row] - mean;
      sum = math::fma(apart, apart, sum);
    }
    call.squares[call.chunk(epoch, m, b)] = sum;
  }
}

// Element e: minibatch e of all epochs.
DEVICE void find_deviation(const Learn& call, const int e) {
  float sum = 0.0f;
  for (int b = 0; b < call.blocks; ++b) sum += call.squares[(size_type)e * call.blocks + b];
  call.moments[e].divisor = math::sqrt(sum * call.moments[e].inverse) + 1e-8f;
}

// ---- the loss of one row ----

// Writes the derivatives by the network's outputs into their places, and what is reported to `metric`.
DEVICE void differentiate_row(const Learn& call, Tile& tile, const int m, const Place place, const Moments moments, float* metric) {
  float* const parameters = tile.parameters(m);
  float& value = *tile.value(m);
  for (int k = 0; k < METRICS; ++k) metric[k] = 0.0f;
  if (!place.in_game(call)) {
    for (int k = 0; k < PARAMETERS; ++k) parameters[k] = 0.0f;
    value = 0.0f;
    return;
  }
  typedef Distribution::Action Action;
  const int g = place.group;
  const size_type row = (size_type)place.row;
  const Action* const action = (const Action*)call.action[g] + row * HEADS;
  const u8* mask = nullptr;
#if !GAUSSIAN
  if (call.mask[g] != nullptr) mask = call.mask[g] + row * CHOICES;
#endif
  const Distribution now(parameters, mask, action);
  float advantage = call.advantage[g][row];
  if constexpr (NORMALIZE) advantage = (advantage - moments.mean) / moments.divisor;

  float objective, by_log_prob;  // the objective, which is to grow, and its derivative
  if constexpr (CLIPPED) {
    const float clip = *call.clip_coef, log_ratio = now.log_prob - call.log_prob[g][row], ratio = math::exp(log_ratio);
    const float plain = advantage * ratio, clipped = advantage * math::clamp(ratio, 1.0f - clip, 1.0f + clip);
    objective = plain > clipped ? clipped : plain;  // keeps NaN
    by_log_prob = plain > clipped ? 0.0f : plain;
    metric[3] = -log_ratio;
    metric[4] = (ratio - 1.0f) - log_ratio;
    metric[5] = math::abs(ratio - 1.0f) > clip ? 1.0f : 0.0f;
  } else {
    objective = advantage * now.log_prob;
    by_log_prob = advantage;
  }
  const float wrong = value - call.returns[g][row];
  float error = wrong * wrong, by_value = wrong;  // twice the loss, and the loss's derivative
  if constexpr (CLIP_VALUE) {
    const float clip = *call.clip_coef, before = call.value[g][row], change = value - before;
    const float near = before + math::clamp(change, -clip, clip) - call.returns[g][row];
    const float by_near = change < -clip || change > clip ? 0.0f : near;
    by_value = near * near > error ? by_near : near * near == error ? 0.5f * (wrong + by_near) : wrong;
    error = near * near > error ? near * near : error;
  }
  metric[0] = -objective;
  metric[1] = 0.5f * error;
  metric[2] = now.entropy;
  now.differentiate(parameters, action, -by_log_prob * moments.inverse, -*call.ent_coef * moments.inverse);
  value = *call.vf_coef * by_value * moments.inverse;
}

// ---- gradients ----

// Part `piece` of the blocks: the sum of its chunks' gradients in minibatch (epoch, minibatch).
DEVICE void learn_piece(const Learn& call, const Team team, Workspace& work, const int piece) {
  if (*call.skip > 0.0f) return;
  const int first_block = (int)((i64)piece * call.blocks / call.pieces), last_block = (int)((i64)(piece + 1) * call.blocks / call.pieces);
  float* const sums = call.partials + (size_type)piece * GRADIENT_FLOATS;
  float* const chunk = call.chunks + (size_type)piece * GRADIENT_FLOATS;
  const Moments moments = call.moments[call.epoch * call.minibatches + call.minibatch];
  for (int i : team.each(GRADIENT_FLOATS)) sums[i] = 0.0f;
  for (int b = first_block; b < last_block; ++b) {
    const int begin = call.first_env(b) * call.rows_of_env(), rows = call.first_env(b + 1) * call.rows_of_env() - begin;
    const int* const order = call.epoch_order(call.epoch) + begin;
    const int from = call.part(call.minibatch, rows), until = call.part(call.minibatch + 1, rows);
    for (int at = from; at < until; at += TILE) {
      const int count = until - at < TILE ? until - at : TILE;
      for (int m : team.each(count)) {
        const Place place(call, order[at + m]);
        work.row[m] = order[at + m];
        const float* const obs = call.obs[place.group] + (size_type)place.row * OBS;
        float* const input = work.tile.input() + m * padded(OBS);
        for (int d = 0; d < OBS; ++d) input[d] = seen(obs[d], call.center, call.scale, d);
        for (int d = OBS; d < padded(OBS); ++d) input[d] = 0.0f;
      }
      team.sync();
      forward(team, work.tile, count, call.copies);
      for (int m : team.each(count)) differentiate_row(call, work.tile, m, Place(call, work.row[m]), moments, work.metric[m]);
      team.sync();
      backward(team, work.tile, count, call.copies, chunk, at == from);
      float* const reported = chunk + GRADIENT_FLOATS - METRICS;
      for (int k : team.each(METRICS)) {
        float sum = at == from ? 0.0f : reported[k];
        for (int m = 0; m < count; ++m) sum += work.metric[m][k];
        reported[k] = sum;
      }
      team.sync();  // the tile is written again
    }
    if (from < until) {
      for (int strip : team.each(GRADIENT_FLOATS / STRIP)) {
        Lanes<STRIP> sum, more;
        sum.load(sums + strip * STRIP);
        more.load(chunk + strip * STRIP);
        sum.add(more);
        sum.store(sums + strip * STRIP);
      }
    }
    team.sync();
  }
}

#include "drive/launch.cuh"
KERNEL(arrange, Learn, call.epochs * call.blocks, arrange_block(call, team, e))
KERNEL(mean, Learn, call.epochs * call.minibatches, if (team.leader()) find_mean(call, e))
KERNEL(spread, Learn, call.epochs * call.blocks, spread_block(call, team, e))
KERNEL(deviation, Learn, call.epochs * call.minibatches, if (team.leader()) find_deviation(call, e))
KERNEL(gradient, Learn, call.pieces, learn_piece(call, team, *work, e))
