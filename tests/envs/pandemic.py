"""The model of ``covid_economy`` once more, for tests: in people and dollars, in float64, with the
whole sum of 600 days.

Written from the equations alone: it shares no line and no table with the environment, whose state
is in shares of each population and whose unemployment comes from running sums.
"""

import json
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "real_world"
FIRST, DELAY, DAYS_OF_FILTER, VACCINES_FROM = 81, 29, 600, 296


class Pandemic:
    """51 states and the country, day after day.

    Args:
        folder: Where the three files of data are.
        settings: Those of the published run are the defaults.
    """

    def __init__(self, folder=DATA / "covid", **settings):
        fit = json.loads((folder / "fitted_params.json").read_text())
        constants = json.loads((folder / "model_constants.json").read_text())
        with np.load(folder / "real_world_data.npz") as file:
            self.real = {name: file[name].astype(float) for name in file.files}
        default = dict(
            health=(0.3, 0.45), working_age=0.6, too_sick=0.1, interest=0.03, eta=2.0, interval=90,
            levels=20,
            most=20_000.0, cooldown=28, vaccines=3000.0,
        )  # fmt: skip
        assert settings.keys() <= default.keys()
        self.__dict__.update(default | settings)
        self.people = np.array(constants["US_STATE_POPULATION"], float)
        self.country = float(constants["US_POPULATION"])
        self.gamma, self.mortality = constants["SIR_GAMMA"], constants["SIR_MORTALITY"]
        self.slope, self.intercept = np.array(fit["BETA_SLOPES"]), np.array(fit["BETA_INTERCEPTS"])
        self.weights = np.array(fit["GROUPED_CONVOLUTIONAL_FILTER_WEIGHTS"]).reshape(51, 5)
        self.lambdas, self.base = np.array(fit["CONV_LAMBDAS"]), np.array(fit["UNEMPLOYMENT_BIAS"])
        idle = (np.log(2) + self.base) * self.people / 100
        workers = int(self.working_age * self.country - idle.sum())
        self.per_worker = constants["GDP_PER_CAPITA"] / (workers / self.country) / 365
        self.most_product = np.maximum(0, self.working_age * self.people - idle) * self.per_worker
        self.ends = {
            (who, what, end): np.array(fit[f"{end}_MARGINAL_{who}_{what}_INDEX"])
            for who in ("AGENT", "PLANNER") for what in ("HEALTH", "ECONOMIC") for end in ("MIN",
            "MAX")
        }  # fmt: skip
        self.life = float(fit["VALUE_OF_LIFE"])
        self.alpha = [self.weight(fit[f"INFERRED_WEIGHTAGE_ON_{who}_HEALTH_INDEX"], m)
                      for who, m in zip(("AGENT", "PLANNER"), self.health, strict=True)]  # fmt: skip

    @staticmethod
    def weight(alpha, scaling):
        z = scaling * np.array(alpha) / (1 - np.array(alpha))
        return z / (1 + z)

    def real_subsidy(self):
        """Return the subsidy level of days 1, 2, ... that real payments come to."""
        rows = self.real["subsidy"][FIRST:, 0]
        level = np.zeros(len(rows) + self.interval + 1, int)
        for day in np.flatnonzero(rows):
            added = round(
                rows[day] / (self.country * self.most / self.levels * self.interval / 365)
            )
            level[day + 1 : day + 1 + self.interval] += added
        return level[1 : len(rows) + 1]

    def utility(self, ratio):
        c = np.clip(ratio, 0.1, 3)
        return (1 + (c ** (1 - self.eta) - 1) / (1 - self.eta)) / 365

    def reward(self, who, deaths, output, ratio):
        index = 0 if who == "AGENT" else 1
        total = 0.0
        for what, value, share in (
            ("HEALTH", -deaths * self.life / output, self.alpha[index]),
            ("ECONOMIC", self.utility(ratio), 1 - self.alpha[index]),
        ):
            low, high = self.ends[who, what, "MIN"], self.ends[who, what, "MAX"]
            total = total + share * (value - low) / (high - low + 1e-10)
        return total

    def run(self, days, levels=None, subsidy=None, mode="training"):
        """Return arrays by name, (days + 1, 51) or (days + 1,): all that happened, row 0 at the
        start.

        Args:
            days: How many.
            levels: (days, 51) actions of the states: 0 keeps the level.
            subsidy: (days,) actions of the planner.
            mode: As the environment's.
        """
        policy = self.real["policy"]
        x = np.concatenate(
            [np.ones((DAYS_OF_FILTER, 51)), policy[: FIRST + 1], np.zeros((days, 51))]
        )
        now = DAYS_OF_FILTER + FIRST  # the row of day 0
        names = (
            "susceptible",
            "infected",
            "recovered",
            "vaccinated",
            "unemployed",
            "deaths",
            "product",
        )
        out = {name: np.zeros((days + 1, 51)) for name in names}
        for name in names[:5]:
            out[name][0] = self.real[name][FIRST]
        out["deaths"][0] = self.mortality * out["recovered"][0]
        out |= {"level": np.zeros(days + 1, int), "money": np.zeros((days + 1, 51)),
        "mask": np.ones((days + 1, 51), bool),
                "reward": np.zeros((days + 1, 51)), "planner": np.zeros(days + 1)}  # fmt: skip
        until = np.zeros(51, int)
        decays = np.exp(-np.arange(DAYS_OF_FILTER) / self.lambdas[:, None])  # (5, 600)
        for t in range(1, days + 1):
            action = levels[t - 1] if mode == "training" else policy[FIRST + t - 1]
            x[now + t] = np.where(action > 0, action, x[now + t - 1])
            due = t == until + 1
            until = np.where(due, np.where(action > 0, until + self.cooldown, until + 1), until)
            if mode != "training":
                out["level"][t] = self.real_subsidy()[t - 1]
            else:
                out["level"][t] = (
                    subsidy[t - 1] if (t - 1) % self.interval == 0 else out["level"][t - 1]
                )
                out["mask"][t] = t >= until
            out["money"][t] = out["level"][t] / self.levels * self.people * self.most / 365
            if mode == "real_data":
                for name in names[:6]:
                    out[name][t] = np.maximum(0, self.real[name][FIRST + t])
            else:
                self.infect(out, t, x[now + t - DELAY])
                self.idle(out, t, x[now + t - DAYS_OF_FILTER : now + t + 1], decays)
            self.produce(out, t)
        out["stringency"] = x[now:]
        return out

    def infect(self, out, t, delayed):
        s, i, r, v = (
            out[name][t - 1] for name in ("susceptible", "infected", "recovered", "vaccinated")
        )
        doses = np.floor(self.people / 1e6 * self.vaccines) if t >= VACCINES_FROM else np.zeros(51)
        share, taken = np.minimum(1, doses / (s + 1e-10)), np.minimum(doses, s)
        ds = -(self.intercept + self.slope * delayed) * (s / self.people) * i * (1 - share) - taken
        dr = self.gamma * i + taken
        for name, value in (
            ("susceptible", s + ds),
            ("infected", i - ds - dr),
            ("recovered", r + dr),
        ):
            out[name][t] = np.maximum(0, value)
        out["vaccinated"][t] = v + taken
        out["deaths"][t] = self.mortality * (out["recovered"][t] - out["vaccinated"][t])

    def idle(self, out, t, levels, decays):
        changes = np.diff(levels, axis=0)[::-1]  # (600, 51), today's first
        q = (self.weights * (decays @ changes).T).sum(axis=1)
        excess = np.where(q > 20, q, np.log1p(np.exp(np.minimum(q, 20))))
        out["unemployed"][t] = (excess + self.base) * self.people / 100

    def produce(self, out, t):
        sick = self.too_sick * out["infected"][t] + out["deaths"][t]
        able = np.maximum(
            0, self.working_age * self.people - self.working_age * sick - out["unemployed"][t]
        )
        money, most = out["money"][t], self.most_product
        out["product"][t] = able * self.per_worker + money
        deaths = out["deaths"][t] - out["deaths"][t - 1]
        output = 365 * most
        out["reward"][t] = self.reward("AGENT", deaths, output, out["product"][t] / most)
        national = (out["product"][t].sum() - (1 + self.interest) * money.sum()) / most.sum()
        out["planner"][t] = self.reward("PLANNER", deaths.sum(), output.sum(), national)
