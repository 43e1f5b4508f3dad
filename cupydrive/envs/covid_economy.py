"""Covid-19 and the economy of the United States: for research on multi-agent learning, not for
policy advice.

Intended use: a benchmark of two-level agents with different interests. Learned policies do not
recommend any real policy. The model has one variant of the virus, constant wages, and people who
never change their behavior by themselves. It does not distinguish people by age, income or any
other property, and vaccinated people are never infected.

51 governors, of the states and Washington DC in alphabetical order, choose the strictness of their
measures every day, from 1 to 10. A choice is binding for four weeks. Strict measures slow
infections a month later and cost jobs immediately. The planner chooses a subsidy every 90 days,
which the country pays with interest. All agents are rewarded for few deaths and high income, with
weights estimated from past policy. Rewards are scaled so that a day's reward would be 0 with the
worse of "all open" and "all closed" in both respects, and 1 with the better. Nothing is random.

Source: the equations and the fit of Trott, Srinivasa, van der Wal, Haneuse & Zheng, "Building a
Foundation for Data-Driven, Interpretable, and Robust Policy Design using the AI Economist"
(arXiv:2108.02904, 2021), reimplemented. Fitted numbers and daily tables come from the repository
salesforce/ai-economist (BSD-3-Clause). The tables derive from the Oxford COVID-19 Government
Response Tracker (levels), JHU CSSE (deaths), Our World in Data (vaccinations) and the U.S. Bureau
of Labor Statistics (unemployment).

Products are fractions of the maximum product of a state or the country, without any measures.
Unemployment depends on changes of level in the last 600 days, through five decaying sums. Only
changes before the start may be forgotten, so an episode has at most 600 days. Missouri's population
counts Kansas City twice, as in the source. The source's divisor of all rewards, which was 1, is
omitted.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.envs.covid_economy_data import (
    CODES,
    COUNTS,
    DECAYS,
    DELAY,
    MEMORY,
    MORTALITY,
    PEOPLE,
    ROWS,
    START,
    STATES,
    tables,
    tiles,
)
from cupydrive.errors import ParameterError
from cupydrive.random import RandomStream

if TYPE_CHECKING:
    import torch

    from cupydrive.drawing.canvas import Canvas

WORDS = 4  # words of levels, each with eight days of four bits
LEVEL_OBS = STATES + 9  # index of the level in a governor's observation
GAMMA = 1 / 14  # rate at which the infected recover or die, 1/day


@dataclass(frozen=True)
class Params:
    """Replay mode, weights of the rewards, and settings of the published training run."""

    mode: str = cd.param(
        "training", "Train policies, or replay historical choices or events.", choices=tuple(ROWS)
    )
    health_scaling_governor: float = cd.param(
        0.3, "Factor of the weight of health.", low=0.0, high=1e3
    )
    health_scaling_planner: float = cd.param(
        0.45, "Factor of the planner's weight.", low=0.0, high=1e3
    )
    working_age_share: float = cd.param(
        0.6, "Fraction of the population.", low=0.1, high=1.0, vary=(0.4, 0.8)
    )
    too_sick_share: float = cd.param(0.1, "Infected people unable to work.", low=0.0, high=1.0)
    interest: float = cd.param(0.03, "Interest rate of subsidies.", low=0.0, high=10.0)
    risk_aversion: float = cd.param(
        2.0, "Risk aversion of income (CRRA).", low=1.1, high=10.0, vary=(1.2, 2.0)
    )
    max_subsidy: float = cd.param(
        20_000.0,
        "Subsidy at the highest level.",
        unit="dollars/person/year",
        low=0.0,
        high=1e7,
        vary=(0.0, 400_000.0),
    )
    vaccines_per_million: float = cd.param(
        3_000.0,
        "Vaccinations per day.",
        unit="people/million",
        low=0.0,
        high=1e6,
        vary=(0.0, 30_000.0),
    )
    transmission_factor: float = cd.param(
        1.0, "Factor of infections without measures.", low=0.0, high=100.0, vary=(0.0, 20.0)
    )
    stringency_factor: float = cd.param(
        1.0, "Factor of the effect of measures.", low=0.0, high=100.0, vary=(0.0, 20.0)
    )
    unemployment_factor: float = cd.param(
        1.0, "Factor of the weights of unemployment.", low=0.0, high=100.0, vary=(0.5, 2.0)
    )
    subsidy_levels: int = cd.param(20, "Levels of the subsidy above 0.", low=1, high=250)
    subsidy_interval: int = cd.param(
        90, "Interval of subsidy choices.", unit="days", low=1, high=600
    )
    cooldown: int = cd.param(28, "Interval of choices of a level.", unit="days", low=1, high=600)
    vaccine_start: int = cd.param(296, "First day of vaccinations.", unit="days", low=1, high=600)
    vaccine_interval: int = cd.param(1, "Interval of vaccinations.", unit="days", low=1, high=600)
    memory: int = cd.param(600, "Memory of unemployment.", unit="days", low=START + 1, high=MEMORY)
    max_episode_steps: int = cd.param(
        540, "Time limit, at which the task ends.", unit="days", low=1, high=MEMORY
    )


def check(p: Params) -> None:
    """Raise an error if an episode exceeds the historical tables or the memory of unemployment."""
    ends = (
        {f"the tables of mode={p.mode!r} end on day": ROWS[p.mode]} if p.mode != "training" else {}
    )
    for why, most in (
        ends | {"the levels of an episode are forgotten after day": p.memory}
    ).items():
        if p.max_episode_steps > most:
            raise ParameterError(
                f"covid_economy: max_episode_steps = {p.max_episode_steps}, but {why} {most}. "
                f"Pass max_episode_steps={most} or less"
            )


def constants(p: Params) -> dict[str, int]:
    """Return the compile-time constants of the kernel."""
    first = -(-p.vaccine_start // p.vaccine_interval) * p.vaccine_interval
    return {
        "STATES": STATES, "DECAYS": DECAYS, "WORDS": WORDS, "DELAY": DELAY, "START": START,
        "FIRST_LEAVING": p.memory - START,
        "FIRST_VACCINES": first, "ROWS": ROWS[p.mode], "PEOPLE": PEOPLE,
    }  # fmt: skip


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    return (
        *(cd.Field(name, shape=(STATES,), scale=4e7, unit="people") for name in COUNTS),
        cd.Field("product", shape=(STATES,), scale=5.0, unit="fraction of the maximum"),
        cd.Field("response", shape=(DECAYS, STATES), scale=10.0, unit="levels"),
        cd.Field("levels", "u4", (WORDS, STATES), unit="four bits a day, the newest lowest"),
        cd.Field("cooldown", "i4", (STATES,), unit="days"),
        cd.Field("subsidy", "i4", unit="level"),
    )


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the two groups."""
    common: dict[str, Any] = dict(mask=True, reward_scale=100.0, obs_scale=2.0, obs_low=0.0)
    return (
        cd.Group("governor", STATES, STATES + 13, spaces.Discrete(11), **common),
        cd.Group("planner", 1, 9 * STATES + 4, spaces.Discrete(p.subsidy_levels + 1), **common),
    )


# ---- tables --------------------------------------------------------------------------------------


def table_fields(p: Params) -> tuple[cd.Table, ...]:
    """Return the tables of the kernel, with a column per state, and optionally the country."""
    of, days = STATES, ROWS[p.mode]
    return (
        cd.Table("people", (of,), low=5e5, high=4e7, unit="people"),
        cd.Table("start", (len(COUNTS), of), high=5e5, unit="people"),
        # the day of the start, the day before, ...
        cd.Table("past", (DELAY, of), "i4", 1, 10, unit="level"),
        cd.Table("response", (DECAYS, of), low=-5.0, high=5.0, unit="levels"),
        cd.Table(
            "leaving", (START + 3, of), low=-3.0, high=3.0, unit="levels"
        ),  # none, the changes up to the start, none
        cd.Table("decay", (2, DECAYS)),  # decay of a day, and of the whole memory
        # without measures, each level's
        cd.Table("infection", (2, of), low=-0.5, high=0.5, unit="1/day"),
        # weights, base
        cd.Table("unemployment", (DECAYS + 1, of), low=-1.0, high=1.0, unit="percent"),
        cd.Table("vaccines", (of,), high=1e5, unit="people"),
        cd.Table("output", (of,), high=1e-7),  # product of a working person
        cd.Table("subsidy", (of,), high=0.2),  # product of one subsidy level
        cd.Table("reward", (2, of + 1), low=-3.0, high=3.0),  # constant, of utility
        cd.Table("death", (of + 1,), low=-1e-5, high=0.0),  # reward of one death
        cd.Table("weight", (of,), high=0.04),  # weight in the country's product
        cd.Table("policy", (days, of), "i4", 1, 10, unit="level"),
        cd.Table("payments", (days,), "i4", 0, p.subsidy_levels, unit="level"),
        # the last row is the deaths of the day
        cd.Table("observed", (len(COUNTS) + 1, days, of), high=5e5, unit="people"),
    )


# ---- reference -----------------------------------------------------------------------------------


def unpacked(words: np.ndarray) -> np.ndarray:
    """Return levels (N, 32, STATES), today's first, from (N, WORDS, STATES) words."""
    nibbles = words[:, :, None, :] >> np.arange(0, 32, 4, dtype=np.uint32)[:, None] & 15
    return nibbles.reshape(len(words), -1, words.shape[-1]).astype(int)


def packed_levels(levels: np.ndarray) -> np.ndarray:
    """Return words (N, WORDS, STATES) from levels (N, 32, STATES), today's first."""
    nibbles = levels.astype(np.uint32).reshape(len(levels), WORDS, 8, -1)
    return np.bitwise_or.reduce(nibbles << np.arange(0, 32, 4, dtype=np.uint32)[:, None], axis=2)


def reset(p: Params, random: RandomStream, table: SimpleNamespace) -> np.ndarray:
    """Return (N,) equal initial states, exact."""
    states = np.zeros(
        len(np.atleast_1d(random.env)), [(f.name, f.dtype, f.shape) for f in state(p)]
    )
    for name, count in zip(COUNTS, table.start, strict=True):
        states[name] = count
    states["response"] = table.response
    levels = np.zeros((1, 8 * WORDS, STATES), int)
    levels[:, :DELAY] = table.past
    states["levels"] = packed_levels(levels)
    return states


def infect(
    p: Params, old: cd.TableArrays, delayed: np.ndarray, elapsed: np.ndarray, table: SimpleNamespace
) -> tuple[cd.TableArrays, np.ndarray, cd.TableArrays]:
    """Return the five counts after infections and vaccinations, and the events."""
    s, i, r, d, v = (old[name] for name in COUNTS[:5])
    on_day = (elapsed >= p.vaccine_start) & (elapsed % p.vaccine_interval == 0)
    doses = np.where(on_day[:, None], table.vaccines.astype(float), 0.0)
    missed, taken = np.minimum(1, doses / (s + 1e-10)), np.minimum(doses, s)
    rate = table.infection[0].astype(float) + table.infection[1].astype(float) * delayed
    ds, dr = -rate * (s / table.people) * i * (1 - missed) - taken, GAMMA * i + taken
    new = {"susceptible": s + ds, "infected": i - ds - dr, "recovered": r + dr}
    died = MORTALITY * GAMMA * i  # deaths are a fraction of those who leave the infected
    seen = {
        "vaccinations": on_day, "everybody left is vaccinated": (doses > s) & (s > 0),
        "nobody is left": s == 0,
        "fewer susceptible than 0": new["susceptible"] < -1,
        "fewer infected than 0": new["infected"] < -1,
    }  # fmt: skip
    new = {name: np.maximum(0, count) for name, count in new.items()}
    return {**new, "deaths": d + died, "vaccinated": v + taken}, died, seen


def step(
    p: Params,
    states: np.ndarray,
    action: cd.Actions,
    elapsed: np.ndarray,
    random: RandomStream,
    table: SimpleNamespace,
) -> cd.StepResult:
    """Step (N,) states. action["governor"] is (N, STATES), action["planner"] (N, 1)."""
    old = {name: states[name].astype(np.float64) for name in (*COUNTS, "response")}
    before, day = unpacked(states["levels"]), np.minimum(elapsed, ROWS[p.mode]) - 1
    free, due = states["cooldown"] == 0, (elapsed - 1) % p.subsidy_interval == 0
    if p.mode == "training":
        chosen, subsidy = (
            action["governor"],
            np.where(due, action["planner"][:, 0], states["subsidy"]),
        )
    else:
        chosen, subsidy = table.policy[day], table.payments[day]
    level = np.where(chosen > 0, chosen, before[:, 0])
    wait = np.where(free, np.where(chosen > 0, p.cooldown - 1, 0), states["cooldown"] - 1)

    new, died, seen = infect(p, old, before[:, DELAY - 1], elapsed, table)
    decay = table.decay.astype(np.float64)[:, None, :, None]
    leaving = table.leaving[np.clip(elapsed - p.memory + START + 1, 0, START + 2)]
    change = (level - before[:, 0])[:, None]
    response = decay[0] * old["response"] + change - decay[1] * leaving[:, None]
    q = (table.unemployment[:DECAYS].astype(np.float64) * response).sum(axis=1)
    excess = np.where(q > 20, q, np.log1p(np.exp(np.minimum(q, 20))))
    new["unemployed"] = (excess + table.unemployment[DECAYS]) * table.people / 100
    if p.mode == "real_data":
        new = dict(zip(COUNTS, table.observed[:-1, day].astype(np.float64), strict=True))
        died, response = table.observed[-1, day].astype(np.float64), old["response"]

    healthy = table.people - p.too_sick_share * new["infected"] - new["deaths"]
    able = p.working_age_share * healthy - new["unemployed"]
    made, given = (
        np.maximum(0, able) * table.output,
        subsidy[:, None] * table.subsidy.astype(np.float64),
    )
    product = made + given
    country = (product - (1 + p.interest) * given) @ table.weight.astype(np.float64)
    income = np.append(product, country[:, None], axis=1)
    deaths = np.append(died, died.sum(axis=1, keepdims=True), axis=1)
    utility = (np.clip(income, 0.1, 3) ** (1 - p.risk_aversion) - 1) / (1 - p.risk_aversion)
    reward = table.reward[0] + table.death.astype(np.float64) * deaths + table.reward[1] * utility
    levels = np.concatenate([level[:, None], before[:, :-1]], axis=1)
    return cd.StepResult(
        state=new
        | dict(
            product=product,
            response=response,
            levels=packed_levels(levels),
            cooldown=wait,
            subsidy=subsidy,
        ),
        reward={"governor": reward[:, :STATES], "planner": reward[:, STATES:]},
        terminated=np.zeros(len(states), bool),
        metrics={
            "deaths": deaths[:, -1],
            "unemployment": new["unemployed"].sum(axis=1) * (100 / PEOPLE / p.max_episode_steps),
            "subsidies": subsidy * (PEOPLE * p.max_subsidy / 365 / p.subsidy_levels / 1e9),
        },
        events={
            **seen,
            "level changed": level != before[:, 0],
            "level kept": chosen == 0,
            "level chosen again": (chosen > 0) & (level == before[:, 0]),
            "choice against the mask": (chosen > 0) & ~free,
            "choice at the end of a wait": (chosen > 0) & free,
            "end of a wait": (wait == 0) & ~free,
            "subsidy chosen": due & (p.mode == "training"),
            "first vaccinations": elapsed == constants(p)["FIRST_VACCINES"],
            "a level of before the start": elapsed < DELAY,
            "change forgotten": leaving != 0,
            "unemployment proportional to its cause": q > 20,
            "nobody at work": able < 0,
            "income as low as counts": income < 0.1,
            "income as high as counts": income > 3,
        },
    )


def observe(
    p: Params, states: np.ndarray, elapsed: np.ndarray, table: SimpleNamespace
) -> cd.Observation:
    """Return observations and masks by group: (N, STATES, 64) and (N, 1, 463)."""
    n, levels, t = len(states), unpacked(states["levels"]), elapsed
    own = [states[name] / table.people for name in COUNTS]
    own += [states["product"], levels[:, DELAY - 1] / 10, levels[:, 0] / 10]
    first, after = constants(p)["FIRST_VACCINES"], (t + 1) % p.vaccine_interval / p.vaccine_interval
    vaccines = np.where(
        t + 1 <= first, np.minimum(1, (first - t - 1) / p.vaccine_interval), 1 - after
    )
    until_choice = 1 - t % p.subsidy_interval / p.subsidy_interval
    common = [t / p.max_episode_steps, until_choice, states["subsidy"] / p.subsidy_levels, vaccines]
    time, *rest = (np.broadcast_to(x[:, None], (n, STATES)) for x in common)
    entries = [*own[:-1], time, own[-1], *rest]  # (N, STATES) each
    of_all = [x if k not in (8, 10, 11, 12) else x[:, :1] for k, x in enumerate(entries)]
    may = (t % p.subsidy_interval == 0)[:, None, None] | (p.mode != "training")
    free = (states["cooldown"] == 0)[:, :, None] | (p.mode != "training")
    keep = np.ones((n, STATES, 1), bool)
    return cd.Observation(
        obs={
            "governor": np.concatenate(
                [np.tile(np.eye(STATES), (n, 1, 1)), np.stack(entries, -1)], -1
            ),
            "planner": np.concatenate(of_all, axis=1)[:, None],
        },
        mask={
            "governor": np.concatenate([keep, np.repeat(free, 10, 2)], 2),
            "planner": np.concatenate([keep[:, :1], np.repeat(may, p.subsidy_levels, 2)], 2),
        },
    )


def sample_states(
    p: Params, rng: np.random.Generator, n: int, table: SimpleNamespace
) -> np.ndarray:
    """Draw states near thresholds: susceptible people, waiting times, and unemployment."""
    states, shape = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)]), (n, STATES)
    for name, most in zip(COUNTS, (1, 1, 1, 0.02, 1, 0.3), strict=True):
        states[name] = rng.uniform(0, most, shape) * table.people
    states["susceptible"] *= rng.choice([0.0, 0.01, 1.0], shape, p=[0.1, 0.2, 0.7])
    states["infected"] = 10 ** rng.uniform(-6, -0.3, shape) * table.people
    states["product"] = rng.uniform(0, 2, shape)
    weights = table.unemployment[:DECAYS].astype(np.float64)
    q = np.where(rng.random(shape) < 0.1, rng.uniform(20, 70, shape), rng.normal(0, 3, shape))
    spread = rng.normal(0, 0.5, (n, DECAYS, STATES))
    toward = weights / (weights**2).sum(axis=0) * (q - (weights * spread).sum(axis=1))[:, None]
    states["response"] = np.clip(spread + toward, -30, 30)
    levels = rng.integers(1, 11, (n, 8 * WORDS, STATES))
    levels[:, 1:] = np.where(rng.random((n, 1, STATES)) < 0.5, levels[:, :1], levels[:, 1:])
    states["levels"] = packed_levels(levels)
    states["cooldown"] = rng.integers(0, rng.choice([1, 2, p.cooldown + 1], shape))
    states["subsidy"] = rng.integers(0, p.subsidy_levels + 1, n)
    return states


def heuristic(
    p: Params, obs: "torch.Tensor", group: str, table: SimpleNamespace
) -> tuple["torch.Tensor", ...]:
    """Return actions (N, C) for NumPy or torch obs (N, C, D): level 6 everywhere, and no subsidy.

    Of all constant levels, level 6 gives states and planner the largest mean return.
    """
    if group == "planner":
        return (0 * (obs[..., 0] > 0),)
    return (6 * (abs(obs[..., LEVEL_OBS] - 0.6) > 0.05),)


LETTERS = 0.58  # height of texts; a state of the map is nearly 1


def draw(
    canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int, table: SimpleNamespace
) -> None:
    """Draw a map of states, brighter for stricter measures, and curves of the country."""
    canvas.view(0, 21.4, 0, top=11.4)
    for code, (x, y), level in zip(
        CODES, tiles(), unpacked(states["levels"][-1:])[0, 0], strict=True
    ):
        left, bottom = 0.4 + x, 9.9 - y
        canvas.rectangle(left, bottom, left + 0.94, bottom + 0.94, shade(canvas, level))
        canvas.text(
            (left + 0.47, bottom + 0.47), code, LETTERS, canvas.STAGE if level > 5 else canvas.INK
        )
    for level in range(1, 11):
        canvas.rectangle(2.8 + 0.7 * level, 0.7, 3.5 + 0.7 * level, 1.2, shade(canvas, level))
    for x, text, anchor in ((3.3, "1", "rm"), (10.7, "10", "lm")):
        canvas.text((x, 0.95), text, LETTERS, anchor=anchor)
    canvas.text((3.5, 1.7), "strictness of measures", LETTERS, anchor="lm")
    # Minimum upper limits of the axes, so that episodes of different policies are comparable.
    curves = (
        ("deaths, thousands", states["deaths"].sum(axis=1) / 1e3, 2000),
        ("jobless, % of people", states["unemployed"].sum(axis=1) * (100 / PEOPLE), 20),
        ("infected, millions", states["infected"].sum(axis=1) / 1e6, 10),
    )
    # billion dollars a day
    subsidies = states["subsidy"] * (PEOPLE * p.max_subsidy / 365e9 / p.subsidy_levels)
    if subsidies.any():
        canvas.text(
            (2.2, 10.37), f"subsidies: ${subsidies[-1]:.1f} billion a day", LETTERS, anchor="lm"
        )
    days = np.arange(len(states)) + elapsed - len(states) + 1
    for k, (title, values, least) in enumerate(curves):
        box, color = (
            (12.9, 7.8 - 3.65 * k, 21.1, 11.3 - 3.65 * k),
            (canvas.PINK, canvas.BLUE, canvas.GREEN)[k],
        )
        ranges = (0, p.max_episode_steps), (0, max(least, above(values.max())))
        canvas.chart(box, [(days, values, color)], *ranges, title, letters=LETTERS)
    for x, text, anchor in ((14.7, "day 0", "lm"), (21.1, f"{p.max_episode_steps}", "rm")):
        canvas.text((x, 0.35), text, 0.9 * LETTERS, canvas.SOFT, anchor)


def shade(canvas: "Canvas", level: int) -> str:
    """Return the color of a level."""
    return canvas.mix(canvas.GRID, canvas.ORANGE, (level - 1) / 9)


def above(value: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, ... that is at least ``value``."""
    power = 10.0 ** np.floor(np.log10(max(value, 1.0)))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


# The costs of a level are immediate, and its benefits come months later. Hence episodes are
# complete and undiscounted, with long traces. On 27 of 28 days there is no choice, which reduces
# the entropy.
LEARN = {
    "learning_rate": ((0, 1e-3), (5_000_000, 1e-4)),
    "ent_coef": ((0, 0.02), (5_000_000, 0.001)),
    "gamma": 1.0,
    "gae_lambda": 0.995,
    "num_steps": 540,
    "num_minibatches": 16,
    "normalize_obs": True,
    "normalize_reward": True,
}

OFTEN = {"subsidy_interval": 7, "subsidy_levels": 4, "cooldown": 2}

SPEC = cd.EnvSpec(
    name="covid_economy",
    params=Params,
    state=state,
    groups=groups,
    time_limit="terminates",
    reference=cd.Reference(reset, step, observe, sample_states),
    constants=constants,
    check=check,
    metrics={"deaths": "float", "unemployment": "float", "subsidies": "float"},
    cases=(
        {},
        {"max_episode_steps": 85, "memory": 85, "vaccine_start": 5, "vaccine_interval": 3} | OFTEN,
        {"mode": "real_policies", "max_episode_steps": 437},
        {"mode": "real_data", "max_episode_steps": 404},
    ),
    heuristic=heuristic,
    display=cd.Display(
        draw=draw,
        trail=MEMORY,
        size=(1120, 706),
        fps=30,
        showcase={
            "rivals": ("planner",),
            "still": 0.7,
            "readable": 480,
            "figures": {
                "unemployment": "unemployment, % of people",
                "subsidies": "subsidies, billion $",
            },
        },
    ),
    training={"num_envs": 64, "steps": 5_000_000, "ppo": LEARN},
    table_fields=table_fields,
    tables=tables,
    summary="For research on learning, not advice on policy: 51 states and a planner weigh deaths "
    "and income in a pandemic.",
)
