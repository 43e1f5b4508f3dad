// covid_economy.cu -- 51 states choose the strictness of their measures, and a planner pays subsidies. A step is a day.
//
// Source: see covid_economy.py, with the origin of the equations and their simplifications. The environment is for research on
// multi-agent learning, and gives no advice on any policy.
//
//   state   people, and each state's product as a share of the production without any job lost to measures
//   action  governor: 0 keeps the level, 1 to 10 is the new one. planner: the subsidy's level, on the days of its choice
//   reward  constant + weight of deaths * deaths of the day + weight of income * utility of the product, of a state or of all
//
// A state's levels of the last 32 days have four bits each, in WORDS words. The newest are the lowest bits of the first word.
struct Params {
  float health_scaling_governor, health_scaling_planner;  // used through the table of rewards
  float working_age_share, too_sick_share, interest, risk_aversion, max_subsidy;
  float vaccines_per_million, transmission_factor, stringency_factor, unemployment_factor;  // used through tables as well
};
struct State {
  Array<float, STATES> susceptible, infected, recovered, deaths, vaccinated, unemployed, product;
  float response[DECAYS][STATES];
  u32 levels[WORDS][STATES];
  Array<int, STATES> cooldown;
  int subsidy;
};

constexpr int CHOICES = 11, SUMS = 3, SEEN = 13;
enum Sum { DEATHS, INCOME, UNEMPLOYED };
enum Seen { PRODUCT = 6, LAGGED, TIME, LEVEL, SUBSIDY_IN, SUBSIDY, VACCINES };  // after the counts of people
struct Shared {
  float part[SUMS][STATES], sum[SUMS];  // parts of the country's sums
  float seen[SEEN][STATES];              // entries of a governor's observation, without its state's id
};
#include "drive/env.cuh"

constexpr float GAMMA = 1.0f / 14.0f, MORTALITY = 0.02f;  // share of the infected who recover or die per day, and of these who die

// Level of i `days` days ago. Yesterday is 0 before `push` and 1 after it.
DEVICE int level_ago(const State& s, int i, int days) { return (int)(s.levels[days / 8][i] >> days % 8 * 4 & 15u); }

// Make `level` the newest level of i.
DEVICE void push(State& s, int i, int level) {
  for (int k = WORDS - 1; k > 0; --k) s.levels[k][i] = s.levels[k][i] << 4 | s.levels[k - 1][i] >> 28;
  s.levels[0][i] = s.levels[0][i] << 4 | (u32)level;
}

DEVICE void reset(Env& env) {
  State& s = env.state;
  NO_UNROLL for (int i : env.team.each(STATES)) {  // rarely run: short code is better
    s.susceptible[i] = env.table.start(0, i);
    s.infected[i] = env.table.start(1, i);
    s.recovered[i] = env.table.start(2, i);
    s.deaths[i] = env.table.start(3, i);
    s.vaccinated[i] = env.table.start(4, i);
    s.unemployed[i] = env.table.start(5, i);
    s.product[i] = 0.0f;
    for (int k = 0; k < DECAYS; ++k) s.response[k][i] = env.table.response(k, i);
    for (int k = 0; k < WORDS; ++k) s.levels[k][i] = 0;
    NO_UNROLL for (int days = DELAY - 1; days >= 0; --days) push(s, i, env.table.past(days, i));
    s.cooldown[i] = 0;
  }
  if (env.team.leader()) s.subsidy = 0;
}

// Row of this day in tables of observed data.
DEVICE int row_of_day(const Env& env) { return math::min(env.elapsed, ROWS) - 1; }

DEVICE int chosen_subsidy(const Env& env) {
  if constexpr (MODE != MODE_TRAINING) return env.table.payments[row_of_day(env)];
  else return (env.elapsed - 1) % SUBSIDY_INTERVAL == 0 ? env.planner.action(0) : env.state.subsidy;
}

// Set the level of i and its waiting time. Returns the change of the level. A choice that the mask forbids takes effect, but does
// not make i wait longer.
DEVICE int choose_level(Env& env, int i) {
  State& s = env.state;
  const int before = level_ago(s, i, 0), wait = s.cooldown[i];
  int choice;
  if constexpr (MODE == MODE_TRAINING) choice = env.governor.action(i);
  else choice = env.table.policy(row_of_day(env), i);
  const int level = choice > 0 ? choice : before;
  s.cooldown[i] = wait > 0 ? wait - 1 : choice > 0 ? COOLDOWN - 1 : 0;
  push(s, i, level);
  return level - before;
}

// Infections and vaccinations of a day, given the level of DELAY days ago. Returns deaths. The vaccinated are never infected: the
// source's S (1 - n / S) is S - n. The recovered never decrease, so they need no floor at 0.
DEVICE float infect(Env& env, int i) {
  State& s = env.state;
  const bool vaccinating = env.elapsed >= VACCINE_START && env.elapsed % VACCINE_INTERVAL == 0;
  const float infected = s.infected[i], susceptible = s.susceptible[i];
  const float taken = math::min(vaccinating ? env.table.vaccines[i] : 0.0f, susceptible), left = susceptible - taken;
  const float rate = env.table.infection(0, i) + env.table.infection(1, i) * (float)level_ago(s, i, DELAY - 1);
  const float caught = rate * (left / env.table.people[i] * infected), over = GAMMA * infected, died = MORTALITY * over;
  s.susceptible[i] = math::max(left - caught, 0.0f);
  s.infected[i] = math::max(infected + (caught - over), 0.0f);
  s.recovered[i] += over + taken;
  s.deaths[i] += died;
  s.vaccinated[i] += taken;
  return died;
}

// Unemployment after a change of level. It responds to the changes of MEMORY days through five decaying sums. A change that drops
// out of the memory was before the start.
DEVICE void employ(Env& env, int i, int change) {
  State& s = env.state;
  const float forgotten = env.table.leaving(math::clamp(env.elapsed - FIRST_LEAVING + 1, 0, START + 2), i);
  float cause = 0.0f;
  for (int k = 0; k < DECAYS; ++k) {
    const float response = env.table.decay(0, k) * s.response[k][i] + (float)change - env.table.decay(1, k) * forgotten;
    s.response[k][i] = response;
    cause += env.table.unemployment(k, i) * response;
  }
  s.unemployed[i] = 0.01f * env.table.people[i] * (math::softplus(cause) + env.table.unemployment(DECAYS, i));
}

// Replay the observed day of i. Returns deaths of the day.
DEVICE float replay(Env& env, int i) {
  State& s = env.state;
  const int row = row_of_day(env);
  s.susceptible[i] = env.table.observed(0, row, i);
  s.infected[i] = env.table.observed(1, row, i);
  s.recovered[i] = env.table.observed(2, row, i);
  s.deaths[i] = env.table.observed(3, row, i);
  s.vaccinated[i] = env.table.observed(4, row, i);
  s.unemployed[i] = env.table.observed(5, row, i);
  return env.table.observed(6, row, i);
}

// Reward of a state, or of all (i = STATES), given deaths and an income.
DEVICE float reward_for(const Env& env, int i, float died, float income) {
  const float exponent = 1.0f - env.params.risk_aversion;
  const float utility = (math::pow(math::clamp(income, 0.1f, 3.0f), exponent) - 1.0f) / exponent;
  return env.table.reward(0, i) + env.table.death[i] * died + env.table.reward(1, i) * utility;
}

DEVICE bool step(Env& env) {
  State& s = env.state;
  const Params& p = env.params;
  const int subsidy = chosen_subsidy(env);
  for (int i : env.team.each(STATES)) {
    float died;
    if constexpr (MODE == MODE_REAL_DATA) {
      died = replay(env, i);
      choose_level(env, i);
    } else {
      died = infect(env, i);
      employ(env, i, choose_level(env, i));
    }
    const float healthy = env.table.people[i] - p.too_sick_share * s.infected[i] - s.deaths[i];
    const float able = math::max(p.working_age_share * healthy - s.unemployed[i], 0.0f);
    const float made = able * env.table.output[i], given = (float)subsidy * env.table.subsidy[i];
    s.product[i] = made + given;
    env.governor.reward(i) = reward_for(env, i, died, made + given);
    env.shared.part[DEATHS][i] = died;
    env.shared.part[INCOME][i] = env.table.weight[i] * (made - p.interest * given);  // the country pays its subsidies
    env.shared.part[UNEMPLOYED][i] = s.unemployed[i];
  }
  env.team.sync();  // all parts are written before they are summed, and all have read yesterday's subsidy before it is overwritten
  for (int k : env.team.each(SUMS)) {  // in the order of the states, for any team
    float sum = 0.0f;
    for (int i = 0; i < STATES; ++i) sum += env.shared.part[k][i];
    env.shared.sum[k] = sum;
  }
  env.team.sync();  // the sums are written before the leader reads them
  if (env.team.leader()) {
    const float* sum = env.shared.sum;
    env.planner.reward(0) = reward_for(env, STATES, sum[DEATHS], sum[INCOME]);
    env.metrics.deaths += sum[DEATHS];
    env.metrics.unemployment += env.horizon.of(100.0f / (float)PEOPLE * sum[UNEMPLOYED]);
    env.metrics.subsidies += (float)subsidy * (p.max_subsidy * ((float)PEOPLE * 1e-9f / 365.0f / (float)SUBSIDY_LEVELS));
    s.subsidy = subsidy;
  }
  return false;
}

// Time from tomorrow to the next vaccinations, as a fraction of an interval. With daily vaccinations it is 0 before the first, then
// 1, as in the source.
DEVICE float vaccines_in(int tomorrow) {
  constexpr float EACH = 1.0f / (float)VACCINE_INTERVAL;
  if (tomorrow <= FIRST_VACCINES) return math::min((float)(FIRST_VACCINES - tomorrow) * EACH, 1.0f);
  return 1.0f - (float)(tomorrow % VACCINE_INTERVAL) * EACH;
}

// The planner observes of each state the entries that its governor observes, entry by entry: all first entries, all second ones,
// ...
DEVICE void observe(Env& env) {
  const State& s = env.state;
  const int since = env.elapsed % SUBSIDY_INTERVAL;
  const float time = env.time(), subsidy_in = 1.0f - (float)since / (float)SUBSIDY_INTERVAL;
  const float subsidy = (float)s.subsidy / (float)SUBSIDY_LEVELS, vaccines = vaccines_in(env.elapsed + 1);
  auto of_all = env.planner.obs(0);
  // Entries of each state, for the governor and for the planner.
  for (int i : env.team.each(STATES)) {
    const float person = 1.0f / env.table.people[i];
    const float own[SEEN] = {person * s.susceptible[i], person * s.infected[i],   person * s.recovered[i],
                             person * s.deaths[i],      person * s.vaccinated[i], person * s.unemployed[i],
                             s.product[i],              0.1f * (float)level_ago(s, i, DELAY - 1),
                             time,                      0.1f * (float)level_ago(s, i, 0),
                             subsidy_in,                subsidy,                  vaccines};
    for (int k = 0; k < SEEN; ++k) env.shared.seen[k][i] = own[k];
    for (int k = 0; k < TIME; ++k) of_all[k * STATES + i] = own[k];
    of_all[TIME * STATES + 1 + i] = own[LEVEL];
  }
  // Entries that all states share.
  if (env.team.leader()) {
    of_all[TIME * STATES] = time;
    of_all[LEVEL * STATES + 1] = subsidy_in;
    of_all[LEVEL * STATES + 2] = subsidy;
    of_all[LEVEL * STATES + 3] = vaccines;
  }
  // Masks: a level may change after its cooldown, the subsidy on the days of its choice.
  NO_UNROLL for (int n : env.team.each(STATES * CHOICES)) {
    const int i = n / CHOICES, choice = n % CHOICES;
    env.governor.mask(i, choice) = choice == 0 || MODE != MODE_TRAINING || s.cooldown[i] == 0;
  }
  for (int k : env.team.each(SUBSIDY_LEVELS + 1)) {
    env.planner.mask(0, k) = k == 0 || MODE != MODE_TRAINING || since == 0;
  }
  env.team.sync();  // `seen` is written before other threads read it
  for (int i = 0; i < STATES; ++i) {
    auto row = env.governor.obs(i);
    for (int k : env.team.each(STATES + SEEN)) {
      row[k] = k >= STATES ? env.shared.seen[k - STATES][i] : k == i ? 1.0f : 0.0f;
    }
  }
}
