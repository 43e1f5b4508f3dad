"""What ``covid_economy`` reads of its source: fitted numbers and daily tables; and a map of the states.

Everything is computed in float64 and rounded once, to a table's float32.
"""

import json
from functools import lru_cache

import numpy as np

from cupydrive.inputs.data import files

STATES, DECAYS = 51, 5
START = 81  # row of 2020-03-22 in tables whose first row is 2020-01-01
DELAY, MEMORY = 29, 600  # days until infections react to a level; for which unemployment remembers a change
ROWS = {
    "training": 1,
    "real_policies": 437,
    "real_data": 404,
}  # days of levels, and of everything, that are after the start
MORTALITY, PEOPLE = 0.02, 328_737_916
COUNTS = ("susceptible", "infected", "recovered", "deaths", "vaccinated", "unemployed")
NAMES = """
AL AK AZ AR CA CO CT DE DC FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO
MT NE NV NH NJ NM NY NC ND OH OK OR PA RI SC SD TN TX UT VT VA WA WV WI WY
"""
CODES = NAMES.split()
MAP = """
AK .. .. .. .. .. .. .. .. .. .. ME
.. .. .. .. .. .. WI .. .. .. VT NH
.. WA ID MT ND MN IL MI .. NY MA ..
.. OR NV WY SD IA IN OH PA NJ CT RI
.. CA UT CO NE MO KY WV VA MD DE ..
.. .. AZ NM KS AR TN NC SC DC .. ..
.. .. .. .. OK LA MS AL GA .. .. ..
HI .. .. .. TX .. .. .. .. FL .. ..
"""


def tiles():
    """Return where each state's square lies on the map: (STATES, 2) columns and rows, from the upper left."""
    places = {code: (x, y) for y, row in enumerate(MAP.split("\n")[1:]) for x, code in enumerate(row.split())}
    return np.array([places[code] for code in CODES])


@lru_cache(maxsize=1)
def upstream():
    """Return fitted numbers, constants and daily tables (rows, STATES) of the source."""
    found = files("covid_economy")
    fit, model = (json.loads(found[name].read_text()) for name in ("fitted_params.json", "model_constants.json"))
    with np.load(found["real_world_data.npz"]) as file:
        return fit, model, {name: file[name].astype(np.float64) for name in file.files}


def tables(p):
    """Return the tables by name; money is in shares of the most that a state, or the country, can make."""
    fit, model, real = upstream()
    people = np.array(model["US_STATE_POPULATION"], float)
    weights = np.array(fit["GROUPED_CONVOLUTIONAL_FILTER_WEIGHTS"]).reshape(STATES, DECAYS).T
    base, lambdas = np.array(fit["UNEMPLOYMENT_BIAS"]), np.array(fit["CONV_LAMBDAS"])[:, None]
    idle = (np.log(2) + base) * people / 100  # unemployed if nothing ever changes
    workers = int(p.working_age_share * PEOPLE - idle.sum())
    per_worker = model["GDP_PER_CAPITA"] * PEOPLE / workers  # dollars a year
    most = np.maximum(0, p.working_age_share * people - idle) * per_worker  # of a year
    dollar = 1 / np.append(most, most.sum())  # of a year, for each state and the country
    changes = np.diff(real["policy"][: START + 1], axis=0, prepend=1.0)
    policy, payments, observed = replayed(p, real, ROWS[p.mode])
    return {
        "people": people,
        "start": counts_of_day(real, START),
        "past": real["policy"][START : START - DELAY : -1].astype(int),
        "response": np.exp(-np.arange(START, -1, -1) / lambdas) @ changes,
        "leaving": np.pad(changes, ((1, 1), (0, 0))),
        "decay": np.exp(-np.array([1, p.memory]) / lambdas).T,
        "infection": np.array([fit["BETA_INTERCEPTS"], fit["BETA_SLOPES"]])
        * [[p.transmission_factor], [p.stringency_factor]],
        "unemployment": np.vstack([weights * p.unemployment_factor, base]),
        "vaccines": np.floor(people / 1e6 * p.vaccines_per_million) * p.vaccine_interval,
        "output": per_worker / most,
        "subsidy": people * dollar[:STATES] * p.max_subsidy / p.subsidy_levels,
        "reward": rewards(p, fit, dollar),
        "weight": most / most.sum(),
        "policy": policy,
        "payments": payments,
        "observed": observed,
    }


def counts_of_day(real, row):
    """Return COUNTS (6, STATES) in one row of the daily tables; deaths are a part of the recovered at the start."""
    deaths = MORTALITY * real["recovered"][row] if row == START else real["deaths"][row]
    return np.array([deaths if name == "deaths" else real[name][row] for name in COUNTS]).clip(0)


def replayed(p, real, days):
    """Return levels and subsidies that history chose on the first ``days`` days, and what happened then."""
    step = (
        PEOPLE * p.max_subsidy / p.subsidy_levels * p.subsidy_interval / 365
    )  # dollars of one level, until the next choice
    paid = np.zeros(days + p.subsidy_interval, int)
    for day in np.flatnonzero(real["subsidy"][START : START + days, 0]):
        paid[day : day + p.subsidy_interval] += round(real["subsidy"][START + day, 0] / max(step, 1e-9))
    if p.mode != "real_data":
        return real["policy"][START : START + days].astype(int), paid[:days], np.zeros((len(COUNTS) + 1, days, STATES))
    observed = np.array([counts_of_day(real, START + day) for day in range(days + 1)]).transpose(1, 0, 2)
    deaths = np.diff(observed[COUNTS.index("deaths")], axis=0)
    return (
        real["policy"][START : START + days].astype(int),
        paid[:days],
        np.concatenate([observed[:, 1:], deaths[None]]),
    )


def rewards(p, fit, dollar):
    """Return (3, STATES + 1): a reward is the first, plus the second times deaths, plus the third times utility."""
    ends = {
        key: np.append(fit[key.replace("*", "AGENT")], fit[key.replace("*", "PLANNER")])
        for key in ("MIN_MARGINAL_*_HEALTH_INDEX", "MAX_MARGINAL_*_HEALTH_INDEX", "MIN_MARGINAL_*_ECONOMIC_INDEX",
                    "MAX_MARGINAL_*_ECONOMIC_INDEX", "INFERRED_WEIGHTAGE_ON_*_HEALTH_INDEX")
    }  # fmt: skip
    low_health, high_health, low_income, high_income, alpha = ends.values()
    odds = alpha / (1 - alpha) * np.append(np.full(STATES, p.health_scaling_governor), p.health_scaling_planner)
    health = odds / (1 + odds) / (high_health - low_health + 1e-10)
    income = 1 / (1 + odds) / (high_income - low_income + 1e-10)
    return np.array(
        [income * (1 / 365 - low_income) - health * low_health, -health * fit["VALUE_OF_LIFE"] * dollar, income / 365]
    )
