// rice_n.cu -- 27 regions save, cut emissions and trade for a century. With negotiation they first propose cuts to each other.
//
// Source: the equations of RICE-N (Zhang et al., 2022). rice_n.py lists the differences, and the names of units and actions.
//
//   state   climate, and each region's stocks, products and sales of the latest period. [i][j] belongs to region i and concerns
//           region j, such as a tariff or a promise. Quantities that do not depend on actions are in tables by period.
//   action  levels of savings, mitigation, exports, tariffs on and bids for each region's goods. With negotiation also a
//           promise to and a request of each region, alternately, and answers to their proposals
//   reward  utility of a period's consumption
struct Params {
  float years, temperature_air, temperature_sea, carbon_air, carbon_upper, carbon_lower;
  float carbon_1750, forcing_2x, forcing_start, forcing_end, forcing_periods, land_emissions, land_decline;
  float gamma, depreciation, damage_1, damage_2, damage_3, theta_2, backstop_price, backstop_decline;
  float intensity_decline, intensity_slowing, technology_growth, alpha, utility_offset, rho;
  float home_weight, foreign_weight, balance_interest, debt_multiplier;
};
struct State {
  float temperature[2], carbon[3], damage;
  Array<float, REGIONS> capital, production, output, consumption, utility, balance, savings, mitigation, export_limit;
  float tariffs[REGIONS][REGIONS];
  Array<float, REGIONS> least_mitigation;
  float promised[PARTNERS][PARTNERS], requested[PARTNERS][PARTNERS], accepted[PARTNERS][PARTNERS];
};
constexpr int SAVE = 0, MITIGATE = 1, EXPORT = 2, TARIFF = 3, IMPORT = TARIFF + REGIONS;  // first head of each kind
constexpr int PROPOSE = IMPORT + REGIONS, ANSWER = PROPOSE + 2 * REGIONS;
enum World { FORCING, LAND, RETENTION, DISCOUNT };  // columns of a table
constexpr int PUBLIC = 8 + NEGOTIATION + 10 * REGIONS + REGIONS * REGIONS, PRIVATE = 9 + NEGOTIATION;  // entries for all, for one
struct Shared {
  Array<float, REGIONS> emissions, price, limit, kept, scale, exports;  // of one period: see `produce` and `sell`
  float common[PUBLIC], own[REGIONS][PRIVATE];
};
#include "drive/env.cuh"
#include "drive/alike.cuh"

constexpr float MOST_WARMING = 7.0067387f, LEAST_WARMING = 1.2506777f, LEAST_OUTPUT = 606.57275f, MOST_OUTPUT = 9673.5322f;

DEVICE float rate(int level) { return (float)level / (float)NUM_LEVELS; }
// Period of the latest step: 0 at the start, at most NUM_PERIODS.
DEVICE int period(const Env& env) { return math::min(env.elapsed / STAGES, NUM_PERIODS); }

DEVICE void reset(Env& env) {
  State& s = env.state;
  const Params& p = env.params;
  if (env.team.leader()) {
    s.temperature[0] = p.temperature_air;
    s.temperature[1] = p.temperature_sea;
    s.carbon[0] = p.carbon_air;
    s.carbon[1] = p.carbon_upper;
    s.carbon[2] = p.carbon_lower;
    s.damage = 0.0f;
  }
  for (int i : env.team.each(REGIONS)) {
    s.capital[i] = env.table.capital[i];
    s.production[i] = s.output[i] = s.consumption[i] = s.utility[i] = s.balance[i] = 0.0f;
    s.savings[i] = s.mitigation[i] = s.export_limit[i] = s.least_mitigation[i] = 0.0f;
    for (int j = 0; j < REGIONS; ++j) s.tariffs[i][j] = 0.0f;
  }
  for (int i : env.team.each(PARTNERS)) {
    for (int j = 0; j < PARTNERS; ++j) s.promised[i][j] = s.requested[i][j] = s.accepted[i][j] = 0.0f;
  }
}

// Production, savings and supply of region i, and its payment for one level of its bids.
DEVICE void produce(Env& env, int i, int k) {
  State& s = env.state;
  Shared& now = env.shared;
  const Params& p = env.params;
  const float air = s.temperature[0], capital = s.capital[i], start = env.table.capital[i];
  const int save = env.region.action(i, SAVE), sell = env.region.action(i, EXPORT);
  const float mitigation = rate(env.region.action(i, MITIGATE));
  const float damage = 1.0f / (1.0f + p.damage_1 * air + p.damage_2 * math::pow(math::abs(air), p.damage_3));
  const float abatement = env.table.mitigation_cost(k, i) * math::pow(mitigation, p.theta_2);
  const float production = env.table.productivity(k, i) * math::pow(capital, p.gamma);
  const float output = damage * (1.0f - abatement) * production;
  const float balance = s.balance[i] * (1.0f + p.balance_interest);
  const float debt = DEBT_FORMULA == DEBT_FORMULA_RATIO ? p.debt_multiplier * balance / start : balance / p.debt_multiplier * start;
  int bids = 0;
  for (int j = 0; j < REGIONS; ++j) bids += j == i ? 0 : env.region.action(i, IMPORT + j);
  // Bids for more than the whole output are scaled down to it. Levels are added as integers, so that nothing is rounded.
  now.price[i] = output * (1.0f + math::clamp(debt, -1.0f, 0.0f)) / (float)math::max(bids, NUM_LEVELS);
  // Limit of sales and remainder at home are split in levels. Their difference from the output, in floats, would be noise where it
  // is 0, and its root matters.
  const int left = NUM_LEVELS - save, sold = math::min(sell, left);
  now.limit[i] = rate(sold) * output;
  now.kept[i] = rate(left - sold) * output;
  now.emissions[i] = env.table.intensity(k - 1, i) * (1.0f - mitigation) * production + env.table.world(k, LAND);
  s.capital[i] = env.table.world(k, RETENTION) * capital + p.years * (rate(save) * output);
  s.production[i] = production;
  s.output[i] = output;
  s.balance[i] = balance;
  s.savings[i] = rate(save);
  s.mitigation[i] = mitigation;
  s.export_limit[i] = rate(sell);
  if (i == 0) s.damage = damage;
}

// Total demand for the goods of region j. If it exceeds the supply, all buyers get the same share of their demand.
DEVICE void sell(Env& env, int j) {
  Shared& now = env.shared;
  float demand = 0.0f;
  for (int i = 0; i < REGIONS; ++i) demand += i == j ? 0.0f : (float)env.region.action(i, IMPORT + j) * now.price[i];
  const float limit = now.limit[j];
  now.exports[j] = math::min(demand, limit);
  now.scale[j] = demand > limit ? limit / demand : 1.0f;
}

// Imports, consumption and reward of region i. Tariffs are those chosen in the previous period.
DEVICE void consume(Env& env, int i, int k) {
  State& s = env.state;
  const Shared& now = env.shared;
  const Params& p = env.params;
  float imports = 0.0f, foreign = 0.0f;
  for (int j = 0; j < REGIONS; ++j) {
    const int level = j == i ? 0 : env.region.action(i, IMPORT + j);
    const float shipped = (float)level * now.price[i] * now.scale[j];
    imports += shipped;
    foreign += math::sqrt(shipped * (1.0f - s.tariffs[i][j]));
    s.tariffs[i][j] = rate(env.region.action(i, TARIFF + j));
  }
  const float exports = now.exports[i], home = now.kept[i] + (now.limit[i] - exports);
  const float root = p.home_weight * math::sqrt(home) + p.foreign_weight / (float)(REGIONS - 1) * foreign;
  const float people = env.table.population(k - 1, i) * 0.001f, power = 1.0f - p.alpha, consumption = root * root;
  const float utility = people * (math::pow_minus_1(consumption / people + p.utility_offset, power) / power);
  s.balance[i] = s.balance[i] + p.years * (exports - imports);
  s.consumption[i] = consumption;
  s.utility[i] = utility;
  env.region.reward(i) = utility;
}

// Temperatures and carbon after a period. Both matrices multiply the values before it.
DEVICE void warm(Env& env, int k) {
  State& s = env.state;
  const Params& p = env.params;
  // Emissions and output of all regions.
  float emissions = 0.0f, output = 0.0f;
  for (int i = 0; i < REGIONS; ++i) {
    emissions += env.shared.emissions[i];
    output += s.output[i];
  }
  const float air = s.temperature[0], doublings = math::log(s.carbon[0] / p.carbon_1750) * 1.44269504f;
  const float heat[] = {air, s.temperature[1], p.forcing_2x * doublings + env.table.world(k, FORCING)};
  const float carbon[] = {s.carbon[0], s.carbon[1], s.carbon[2], emissions};
  // Multiply by both matrices.
  for (int n = 0; n < 2; ++n) {
    s.temperature[n] = 0.0f;
    for (int m = 0; m < 3; ++m) s.temperature[n] += env.table.heat(n, m) * heat[m];
  }
  for (int n = 0; n < 3; ++n) {
    s.carbon[n] = 0.0f;
    for (int m = 0; m < 4; ++m) s.carbon[n] += env.table.carbon(n, m) * carbon[m];
  }
  // Metrics.
  const float warming = s.temperature[0] - air;
  env.metrics.temperature_rise += warming;
  env.metrics.output += output;
  env.metrics.climate_index += ((k == 1 ? MOST_WARMING : 0.0f) - warming) * (1.0f / (MOST_WARMING - LEAST_WARMING));
  env.metrics.economic_index += (output - (k == 1 ? LEAST_OUTPUT : 0.0f)) * (1.0f / (MOST_OUTPUT - LEAST_OUTPUT));
}

DEVICE bool act(Env& env) {
  const int k = math::max(1, period(env));
  for (int i : env.team.each(REGIONS)) produce(env, i, k);
  env.team.sync();  // all prices and supplies are written before they are read
  for (int j : env.team.each(REGIONS)) sell(env, j);
  env.team.sync();  // all sales are written before they are read
  for (int i : env.team.each(REGIONS)) consume(env, i, k);
  if (env.team.leader()) warm(env, k);
  return env.elapsed / STAGES >= NUM_PERIODS;
}

DEVICE void propose(Env& env) {
  for (int i : env.team.each(PARTNERS)) {
    for (int j = 0; j < PARTNERS; ++j) {
      env.state.promised[i][j] = rate(env.region.action(i, PROPOSE + 2 * j));
      env.state.requested[i][j] = rate(env.region.action(i, PROPOSE + 2 * j + 1));
    }
  }
}

// Region i is bound by its promises to regions that accepted, and by requests of regions whose proposals it accepts.
DEVICE void answer(Env& env) {
  State& s = env.state;
  for (int i : env.team.each(PARTNERS)) {
    for (int j = 0; j < PARTNERS; ++j) s.accepted[i][j] = i == j ? 0.0f : (float)env.region.action(i, ANSWER + j);
  }
  env.team.sync();  // all answers are written before they are read
  for (int i : env.team.each(PARTNERS)) {
    float least = 0.0f;
    for (int j = 0; j < PARTNERS; ++j) {
      least = math::max(least, math::max(s.promised[i][j] * s.accepted[j][i], s.requested[j][i] * s.accepted[i][j]));
    }
    s.least_mitigation[i] = least;
  }
}

DEVICE bool step(Env& env) {
  const int stage = env.elapsed % STAGES;
  if (stage == 0) return act(env);
  if (stage == 1) propose(env);
  else answer(env);
  return false;
}

// Observations of the world and of all regions, shared by all.
DEVICE void see_world(Env& env, int k) {
  const State& s = env.state;
  float* const common = env.shared.common;
  // Entries of the world.
  if (env.team.leader()) {
    for (int n = 0; n < 2; ++n) common[n] = s.temperature[n] * 0.1f;
    for (int n = 0; n < 3; ++n) common[2 + n] = s.carbon[n] * 1e-4f;
    common[5] = env.table.world(k, FORCING);
    common[6] = env.table.world(k, LAND);
    common[7] = (float)env.elapsed / 100.0f;
    if (NEGOTIATION) common[8] = (float)(env.elapsed % STAGES);
  }
  float* const of_regions = common + 8 + NEGOTIATION;
  // Entries of regions, then tariffs.
  for (int i : env.team.each(REGIONS)) {
    const float shown[] = {s.capital[i] * 1e-4f, env.table.world(k, RETENTION), env.table.population(k, i) * 1e-4f,
                           s.output[i] * 1e-3f, s.savings[i] * s.output[i] * 1e-3f, s.consumption[i] * 1e-3f,
                           s.savings[i], s.mitigation[i], s.export_limit[i], s.balance[i] * 1e-3f};
    for (int n = 0; n < 10; ++n) of_regions[n * REGIONS + i] = shown[n];
  }
  for (int i : env.team.each(REGIONS)) {
    for (int j = 0; j < REGIONS; ++j) of_regions[10 * REGIONS + i * REGIONS + j] = s.tariffs[i][j] * 0.01f;
  }
}

// Observations of region i that only it sees.
DEVICE void see_oneself(Env& env, int i, int k) {
  const State& s = env.state;
  float* const own = env.shared.own[i];
  const float cost = env.table.mitigation_cost(k, i), utility = s.utility[i];
  own[0] = env.table.technology(k, i) * 0.01f;
  own[1] = env.table.intensity(k, i) * 10.0f;
  own[2] = cost;
  own[3] = s.damage;
  own[4] = cost * math::pow(s.mitigation[i], env.params.theta_2);
  own[5] = s.production[i] * 1e-3f;
  own[6] = utility;
  own[7] = utility * env.table.world(k, DISCOUNT);
  own[8] = env.elapsed % STAGES == 0 ? utility : 0.0f;
  if (NEGOTIATION) own[PRIVATE - 1] = s.least_mitigation[i];
}

// Promises of region i and to it, requests of it and to it, acceptances by it and of its proposals: 27 entries each.
DEVICE float of_treaty(const State& s, int i, int n) {
  const int kind = n / REGIONS, j = n % REGIONS, from = kind % 2 == 0 ? i : j, to = kind % 2 == 0 ? j : i;
  return kind < 2 ? s.promised[from][to] : kind < 4 ? s.requested[from][to] : s.accepted[from][to];
}

// With WORLD_ONCE one agent of another group observes the shared entries. A template, because env.world exists only then.
template <class AnyEnv> DEVICE void put_world(AnyEnv& env) {
  if constexpr (WORLD_ONCE) {
    const auto entry = [&](int n) INLINED { return env.shared.common[n]; };
    put_row<PUBLIC, 0, PUBLIC>(env.team, env.world.obs(0), entry, entry);
  }
}

DEVICE void observe(Env& env) {
  const State& s = env.state;
  const int k = period(env);
  see_world(env, k);
  for (int i : env.team.each(REGIONS)) see_oneself(env, i, k);
  env.team.sync();  // all shared entries are written before they are read
  put_world(env);
  constexpr int FROM = REGIONS, UNTIL = WORLD_ONCE ? FROM : FROM + PUBLIC, TREATIES = UNTIL + PRIVATE;
  constexpr int OBS = NEGOTIATION ? TREATIES + 6 * REGIONS : TREATIES;
  for (int i = 0; i < REGIONS; ++i) {
    put_row<OBS, FROM, UNTIL>(
        env.team, env.region.obs(i), [&](int n) INLINED { return env.shared.common[n - FROM]; },
        [&](int n) INLINED {
          if (n < FROM) return (float)(n == i);
          return n < TREATIES ? env.shared.own[i][n - UNTIL] : of_treaty(s, i, n - TREATIES);
        });
  }
  if constexpr (NEGOTIATION) {
    env.region.allow_all(env.team);
    env.team.sync();  // all masks are 1 before some are cleared
    for (int i : env.team.each(REGIONS)) {
      const int least = math::to_int(s.least_mitigation[i] * (float)NUM_LEVELS + 0.5f);
      for (int level = 0; level < LEVELS; ++level) env.region.mask(i, level, MITIGATE) = level >= least;
    }
  }
}
