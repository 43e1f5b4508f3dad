"""Published data of ``covid_economy``: fitted numbers, daily tables, and a map of the states.

All values are computed in float64 and rounded once, to the float32 of a table.
"""

import json
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cupydrive.inputs.data import files

if TYPE_CHECKING:
    from cupydrive.envs.covid_economy import Params

STATES, DECAYS = 51, 5
START = 81  # row of 2020-03-22 in tables whose first row is 2020-01-01
# Days until infections react to a level, and days of memory of unemployment.
DELAY, MEMORY = 29, 600
ROWS = {
    "training": 1,
    "real_policies": 437,
    "real_data": 404,
}  # days with levels, and with all data, after the start
MORTALITY, PEOPLE = 0.02, 328_737_916
COUNTS = ("susceptible", "infected", "recovered", "deaths", "vaccinated", "unemployed")
REWARDS = (
    "MIN_MARGINAL_*_HEALTH_INDEX",
    "MAX_MARGINAL_*_HEALTH_INDEX",
    "MIN_MARGINAL_*_ECONOMIC_INDEX",
    "MAX_MARGINAL_*_ECONOMIC_INDEX",
    "INFERRED_WEIGHTAGE_ON_*_HEALTH_INDEX",
)
FITTED = (
    "BETA_INTERCEPTS",
    "BETA_SLOPES",
    "CONV_LAMBDAS",
    "GROUPED_CONVOLUTIONAL_FILTER_WEIGHTS",
    "UNEMPLOYMENT_BIAS",
    "VALUE_OF_LIFE",
    "US_STATE_POPULATION",
    "GDP_PER_CAPITA",
    *(key.replace("*", who) for key in REWARDS for who in ("AGENT", "PLANNER")),
)
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


def tiles() -> np.ndarray:
    """Return the map's column and row of each state, (STATES, 2), from the upper left."""
    places = {
        code: (x, y)
        for y, row in enumerate(MAP.split("\n")[1:])
        for x, code in enumerate(row.split())
    }
    return np.array([places[code] for code in CODES])


@lru_cache(maxsize=1)
def upstream() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the fitted numbers and the daily tables by name, in float64.

    Daily tables have shape (days from 2020-01-01, STATES or 1).
    """
    found = files("covid_economy")
    texts = [
        found[f"{name}.json"].read_text(encoding="utf-8")
        for name in ("fitted_params", "model_constants")
    ]
    fitted = json.loads(texts[0]) | json.loads(texts[1])
    with np.load(found["real_world_data.npz"]) as daily:
        tables = {name: daily[name].astype(np.float64) for name in ("policy", "subsidy", *COUNTS)}
    return {name: np.array(fitted[name], np.float64) for name in FITTED}, tables


def rows(name: str, first: int, last: int) -> np.ndarray:
    """Return rows ``first`` to ``last`` of a daily table."""
    return upstream()[1][name][first : last + 1]


def tables(p: "Params") -> dict[str, np.ndarray]:
    """Return the tables by name. Money is relative to the maximum product of a state or country."""
    fit, people, days = upstream()[0], upstream()[0]["US_STATE_POPULATION"], ROWS[p.mode]
    weights = fit["GROUPED_CONVOLUTIONAL_FILTER_WEIGHTS"].reshape(STATES, DECAYS).T
    base, lambdas = fit["UNEMPLOYMENT_BIAS"], fit["CONV_LAMBDAS"][:, None]
    idle = (np.log(2) + base) * people / 100  # unemployed people in the steady state
    workers = int(p.working_age_share * PEOPLE - idle.sum())
    per_worker = fit["GDP_PER_CAPITA"] * PEOPLE / workers  # dollars a year
    most = (
        np.maximum(0, p.working_age_share * people - idle) * per_worker
    )  # maximum product of a year
    dollar = 1 / np.append(most, most.sum())  # one dollar relative to a year's maximum product
    past = rows("policy", 0, START)
    changes = np.diff(past, axis=0, prepend=1.0)
    factors = [[p.transmission_factor], [p.stringency_factor]]
    return {
        "people": people,
        "start": counts(START, START)[:, 0],
        "past": past[: START - DELAY : -1].astype(int),
        "response": np.exp(-np.arange(START, -1, -1) / lambdas) @ changes,
        "leaving": np.pad(changes, ((1, 1), (0, 0))),
        "decay": np.exp(-np.array([1, p.memory]) / lambdas).T,
        "infection": np.array([fit["BETA_INTERCEPTS"], fit["BETA_SLOPES"]]) * factors,
        "unemployment": np.vstack([weights * p.unemployment_factor, base]),
        "vaccines": np.floor(people / 1e6 * p.vaccines_per_million) * p.vaccine_interval,
        "output": per_worker / most,
        "subsidy": people * dollar[:STATES] * p.max_subsidy / p.subsidy_levels,
        **rewards(p, fit, dollar),
        "weight": most / most.sum(),
        "policy": rows("policy", START, START + days - 1).astype(int),
        "payments": payments(p, days),
        "observed": happened(days)
        if p.mode == "real_data"
        else np.zeros((len(COUNTS) + 1, days, STATES)),
    }


def counts(first: int, last: int) -> np.ndarray:
    """Return COUNTS (6, rows, STATES) for rows of the daily tables.

    At the start, deaths are a fraction of the recovered.
    """
    found = {name: rows(name, first, last).copy() for name in COUNTS}
    if first == START:
        found["deaths"][0] = MORTALITY * found["recovered"][0]
    return np.array([found[name] for name in COUNTS]).clip(0)


def happened(days: int) -> np.ndarray:
    """Return COUNTS and daily deaths (7, days, STATES) of the first days after the start."""
    found = counts(START, START + days)
    deaths = np.diff(found[COUNTS.index("deaths")], axis=0)
    return np.concatenate([found[:, 1:], deaths[None]])


def payments(p: "Params", days: int) -> np.ndarray:
    """Return (days,) subsidy levels that correspond to the real payments.

    Each level lasts until the planner can choose again.
    """
    of_level = PEOPLE * p.max_subsidy / p.subsidy_levels * p.subsidy_interval / 365  # dollars
    paid, level = (
        rows("subsidy", START, START + days - 1)[:, 0],
        np.zeros(days + p.subsidy_interval, int),
    )
    for day in np.flatnonzero(paid):
        level[day : day + p.subsidy_interval] += round(paid[day] / max(of_level, 1.0))
    return level[:days]


def rewards(p: "Params", fit: dict[str, np.ndarray], dollar: np.ndarray) -> dict[str, np.ndarray]:
    """Return the tables of rewards of states and country: constant, weight of a death, and weight
    of utility.
    """
    low_health, high_health, low_income, high_income, alpha = (
        np.append(fit[key.replace("*", "AGENT")], fit[key.replace("*", "PLANNER")])
        for key in REWARDS
    )
    odds = (
        alpha
        / (1 - alpha)
        * np.append(np.full(STATES, p.health_scaling_governor), p.health_scaling_planner)
    )
    health = odds / (1 + odds) / (high_health - low_health + 1e-10)
    income = 1 / (1 + odds) / (high_income - low_income + 1e-10)
    constant = income * (1 / 365 - low_income) - health * low_health
    return {
        "reward": np.array([constant, income / 365]),
        "death": -health * fit["VALUE_OF_LIFE"] * dollar,
    }
