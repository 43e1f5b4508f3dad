"""RICE-N: 27 regions save, cut emissions and trade from 2015 to 2115, with optional negotiation.

Source: the equations and coefficients of the AI for Global Climate Cooperation challenge (Zhang et
al., 2022, arXiv 2208.07004), as in its Python program. The regions are fictitious. Differences:

* ``debt_formula="product"`` is the rule from before August 2023, by which regions in debt import
  less.
* Quantities that do not depend on actions (people, technology, carbon of output, the price of a
  cut) are tables over time, computed once in float64, instead of state. The revenue of tariffs,
  which no region receives, is omitted.
* ``full_rate=True`` adds the rate 1 as a level of each head. The two policies that define the
  published indices use it.

``world_once=True``, for fast rollouts, writes the part of the observation that all regions share
only once, as the observation of a second group, ``world``, with one agent without reward or choice.
``whole_observations`` combines the rows. Train without it, because policies observe only their own
group.

Letters: N environments, C = 27 regions, P periods. [i, j] refers to region i's action toward
region j, or its imports from j.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.envs.rice_n_data import C, table_fields, tables
from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import shown
from cupydrive.random import RandomStream

if TYPE_CHECKING:
    import torch

    from cupydrive.drawing.canvas import Canvas

SAVE, MITIGATE, EXPORT, TARIFF, IMPORT = 0, 1, 2, 3, 3 + C  # the first head of each kind
# Order: promised to region 0, requested from region 0, promised to region 1, ...
PROPOSE, ANSWER = IMPORT + C, IMPORT + 3 * C
# Numbers of a region's own entries and of shared entries of an observation, without and with
# negotiation.
WIDTHS = (C + 9, 8 + 10 * C + C * C), (C + 10 + 6 * C, 9 + 10 * C + C * C)
LEAST = -6 * C - 1  # entry of the minimum mitigation with negotiation, before those of treaties
FORCING, LAND, RETENTION, DISCOUNT = range(4)  # columns of the table `world`
POOR, MIDDLE, RICH = "#FF8A3D", "#A9B7C4", "#4CB5F9"
# Two extreme policies: the published ends 0 and 1 of both indices.
MOST_WARMING, LEAST_WARMING, LEAST_OUTPUT, MOST_OUTPUT = 7.0067387, 1.2506777, 606.57275, 9673.5322


@dataclass(frozen=True)
class Params:
    """Parameters of RICE-N. Units are 10^12 dollars, 10^9 t of carbon, and 10^6 people."""

    negotiation: bool = cd.param(
        False, "Negotiate mitigation in two additional steps before each period."
    )
    world_once: bool = cd.param(
        False, "Observe the shared part once, in a group `world` of one agent."
    )
    debt_formula: str = cd.param(
        "ratio", "Measure of debt: debt / capital, or debt * capital.", choices=("ratio", "product")
    )
    num_levels: int = cd.param(
        10, "Levels of an action. A rate is level / num_levels.", low=2, high=1000
    )
    full_rate: bool = cd.param(False, "Add the rate 1 as a level.")
    num_periods: int = cd.param(20, "Number of periods of an episode.", low=1, high=1000)
    years: float = cd.param(5.0, "Length of a period.", unit="a", low=0.1, high=50.0)
    temperature_air: float = cd.param(
        0.85, "Initial warming of the air since 1900.", unit="K", low=0.0, high=100.0
    )
    temperature_sea: float = cd.param(
        0.0068, "Initial warming of the deep sea.", unit="K", low=0.0, high=100.0
    )
    carbon_air: float = cd.param(851.0, "Initial carbon in the air.", unit="Gt", low=1.0, high=1e5)
    carbon_upper: float = cd.param(
        460.0, "Carbon in the upper sea and on land.", unit="Gt", low=0.0, high=1e5
    )
    carbon_lower: float = cd.param(1740.0, "Carbon in the deep sea.", unit="Gt", low=0.0, high=1e5)
    carbon_1750: float = cd.param(588.0, "Carbon in the air of 1750.", unit="Gt", low=1.0, high=1e5)
    forcing_2x: float = cd.param(
        3.6813, "Forcing of doubled carbon.", unit="W/m^2", low=0.0, high=100.0
    )
    forcing_start: float = cd.param(
        0.5, "Initial forcing of other gases.", unit="W/m^2", low=-10.0, high=10.0
    )
    forcing_end: float = cd.param(
        1.0, "Final forcing of other gases.", unit="W/m^2", low=-10.0, high=10.0
    )
    forcing_periods: float = cd.param(
        20.0, "Time of this increase.", unit="periods", low=1.0, high=1000.0
    )
    land_emissions: float = cd.param(
        2.6, "Initial emissions of land use.", unit="Gt/a", low=0.0, high=1e3
    )
    land_decline: float = cd.param(
        0.001, "Decline of these emissions per period.", low=0.0, high=1.0
    )
    gamma: float = cd.param(0.3, "Elasticity of output to capital.", low=0.01, high=0.99)
    depreciation: float = cd.param(0.1, "Capital lost in a year.", low=0.0, high=0.99)
    damage_1: float = cd.param(
        0.0, "Linear damage by warming.", unit="1/K", low=0.0, high=1.0, vary=(0.0, 0.01)
    )
    damage_2: float = cd.param(0.00236, "Damage by a power of warming.", low=0.0, high=1.0)
    damage_3: float = cd.param(2.0, "Exponent of this damage.", low=0.1, high=10.0)
    theta_2: float = cd.param(2.6, "Exponent of mitigation costs.", low=0.1, high=10.0)
    backstop_price: float = cd.param(
        550.0, "Price of cutting the last ton.", unit="$/t", low=0.0, high=1e4
    )
    backstop_decline: float = cd.param(0.001, "Decline of it per period.", low=0.0, high=1.0)
    intensity_decline: float = cd.param(
        0.0025, "Decline of carbon per output in a year.", low=0.0, high=1.0
    )
    intensity_slowing: float = cd.param(
        0.1, "Slowdown of this decline in a year.", low=0.0, high=0.99
    )
    technology_growth: float = cd.param(
        0.0033, "Final growth of technology.", unit="1/period", low=-1.0, high=1.0
    )
    alpha: float = cd.param(1.45, "Aversion to inequality.", low=1.05, high=10.0, vary=(1.1, 2.0))
    utility_offset: float = cd.param(
        1.0, "Constant added to consumption per head.", unit="1000 $", low=0.01, high=1e3
    )
    rho: float = cd.param(0.015, "Yearly discount of observed welfare.", low=0.0, high=1.0)
    home_weight: float = cd.param(0.5, "Weight of one's own goods (Armington).", low=0.0, high=1.0)
    foreign_weight: float = cd.param(0.5, "Weight of all other regions' goods.", low=0.0, high=1.0)
    balance_interest: float = cd.param(
        0.1, "Interest on the trade balance per period.", low=0.0, high=1.0
    )
    debt_multiplier: float = cd.param(
        10.0, "Strength of the effect of debt on bids.", low=0.1, high=1e3
    )
    max_episode_steps: int = cd.param(
        60, "Time limit, at least the length of all periods.", unit="steps", low=1
    )


def constants(p: Params) -> dict[str, int]:
    """Return the compile-time constants of the kernel. PARTNERS is 1 without negotiation."""
    stages, partners = (3, C) if p.negotiation else (1, 1)
    return {
        "REGIONS": C,
        "STAGES": stages,
        "LEVELS": p.num_levels + p.full_rate,
        "PARTNERS": partners,
    }


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``.

    Without negotiation, the last three fields have a single, unused entry.
    """
    pairs = (constants(p)["PARTNERS"],) * 2
    return (
        cd.Field("temperature", "f4", (2,), 10.0, "K, of air and sea"),
        cd.Field("carbon", "f4", (3,), 3000.0, "Gt, of air, upper and deep sea"),
        cd.Field("damage", "f4", (), 1.0, "fraction of output after warming"),
        cd.Field("capital", "f4", (C,), 1000.0, "10^12 $"),
        cd.Field("production", "f4", (C,), 100.0, "10^12 $, before damage and mitigation"),
        cd.Field("output", "f4", (C,), 100.0, "10^12 $"),
        cd.Field("consumption", "f4", (C,), 30.0, "10^12 $"),
        cd.Field("utility", "f4", (C,), 1.0),
        cd.Field("balance", "f4", (C,), 200.0, "10^12 $ of trade"),
        cd.Field("savings", "f4", (C,), 1.0, "share of output"),
        cd.Field("mitigation", "f4", (C,), 1.0, "share of emissions that is cut"),
        cd.Field("export_limit", "f4", (C,), 1.0, "share of output"),
        cd.Field("tariffs", "f4", (C, C), 1.0, "share, on the column's goods"),
        cd.Field("least_mitigation", "f4", (C,), 1.0, "share, agreed"),
        cd.Field("promised", "f4", pairs, 1.0, "own mitigation, offered to the column"),
        cd.Field("requested", "f4", pairs, 1.0, "the column's mitigation, asked for"),
        cd.Field("accepted", "f4", pairs, 1.0, "1 if the column's proposal is accepted"),
    )


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the regions, and with ``world_once`` the agent with the shared observation."""
    levels, (own, shared) = constants(p)["LEVELS"], WIDTHS[p.negotiation]
    heads = [levels] * PROPOSE + ([levels] * (2 * C) + [2] * C) * p.negotiation
    regions = cd.Group(
        "region",
        C,
        own + shared * (not p.world_once),
        spaces.MultiDiscrete(heads),
        mask=p.negotiation,
    )
    return (
        (regions, cd.Group("world", 1, shared, spaces.Discrete(1))) if p.world_once else (regions,)
    )


def whole_observations(
    obs: "dict[str, np.ndarray] | dict[str, torch.Tensor]",
) -> "np.ndarray | torch.Tensor":
    """Combine observations of ``world_once=True`` to those of the default, with bitwise identical
    results.

    Args:
        obs: ``{"region": (..., 27, 36), "world": (..., 1, 1007)}``. With negotiation the last
            sizes are 199 and 1,008. Both are NumPy arrays or torch tensors of one dtype, from
            ``step`` or from ``rollout``, (T + 1, N, ...).

    Returns:
        New observations (..., 27, 1043) or (..., 27, 1207) of the same kind, dtype and device.

    Raises:
        ParameterError: If ``obs`` has another format.
    """
    given: dict[str, Any] = obs if isinstance(obs, dict) else {}
    own, world = (given.get(name, np.zeros(0)) for name in ("region", "world"))
    is_array, shapes = isinstance(own, np.ndarray), [tuple(own.shape), tuple(world.shape)]
    known = [
        [(*shapes[0][:-2], C, entries), (*shapes[0][:-2], 1, shared)] for entries, shared in WIDTHS
    ]
    if shapes not in known or type(own) is not type(world) or own.dtype != world.dtype:
        raise ParameterError(
            f"whole_observations: got obs = {shown(obs)}, expected observations of "
            "world_once=True: region (..., 27, 36) and world (..., 1, 1007), or (..., 27, 199) and "
            "(..., 1, 1008) with negotiation, NumPy or torch, of one dtype"
        )
    shape, end = (*own.shape[:-1], own.shape[-1] + world.shape[-1]), C + world.shape[-1]
    whole = np.empty(shape, own.dtype) if is_array else own.new_empty(shape)
    whole[..., :C], whole[..., C:end], whole[..., end:] = own[..., :C], world, own[..., C:]
    return whole


# ---- the reference ----


def reset(p: Params, random: RandomStream, table: SimpleNamespace) -> np.ndarray:
    """Return (N,) equal initial states."""
    states = np.zeros(len(random.bits(1)), SPEC.state_dtype(p))
    states["temperature"] = p.temperature_air, p.temperature_sea
    states["carbon"] = p.carbon_air, p.carbon_upper, p.carbon_lower
    states["capital"] = table.capital
    return states


def period_of(p: Params, elapsed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the period of the latest of (N,) steps, from 0 to P, and its stage.

    Stage 0 is the step that ends a period.
    """
    stages = constants(p)["STAGES"]
    return np.minimum(elapsed // stages, p.num_periods), elapsed % stages


def next_period(
    p: Params, s: cd.TableArrays, rate: np.ndarray, k: np.ndarray, table: SimpleNamespace
) -> tuple[cd.TableArrays, cd.TableArrays, cd.TableArrays]:
    """Return state, margins and events after period ``k`` (N,), given rates (N, C, H)."""
    save, mitigate, export = (rate[..., head] for head in (SAVE, MITIGATE, EXPORT))
    bids = rate[..., IMPORT : IMPORT + C] * (1 - np.eye(C))
    forcing, land, retention, _ = np.moveaxis(table.world.astype(float)[k], -1, 0)
    people, intensity = table.population[k - 1] / 1000.0, table.intensity[k - 1].astype(float)
    air = s["temperature"][:, 0]
    damage = 1 / (1 + p.damage_1 * air + p.damage_2 * abs(air) ** p.damage_3)
    abatement = table.mitigation_cost[k] * mitigate**p.theta_2
    production = table.productivity[k] * s["capital"] ** p.gamma
    output = damage[:, None] * (1 - abatement) * production
    invested = save * output
    balance = s["balance"] * (1 + p.balance_interest)
    start = table.capital.astype(float)
    debt = (
        p.debt_multiplier * balance / start
        if p.debt_formula == "ratio"
        else balance / p.debt_multiplier * start
    )
    money = bids * output[..., None]
    asked = money.sum(axis=2)
    money = money * np.minimum(1, output / np.maximum(asked, output))[..., None]
    money = money * (1 + np.clip(debt, -1, 0))[..., None]
    # of and on what each one sells
    demand, limit = money.sum(axis=1), np.minimum(export * output, output - invested)
    with np.errstate(invalid="ignore", divide="ignore"):
        shipped = money * np.where(demand > limit, limit / demand, 1.0)[:, None, :]
    exports, imports = shipped.sum(axis=1), shipped.sum(axis=2)
    home = np.maximum(0, output - invested - exports)
    foreign = np.sqrt(shipped * (1 - s["tariffs"])).sum(axis=2) / (C - 1)
    consumption = (p.home_weight * np.sqrt(home) + p.foreign_weight * foreign) ** 2
    power = 1 - p.alpha
    utility = people * ((consumption / people + p.utility_offset) ** power - 1) / power
    emissions = (intensity * (1 - mitigate) * production + land[:, None]).sum(axis=1)
    forcing = forcing + p.forcing_2x * np.log2(s["carbon"][:, 0] / p.carbon_1750)
    heat = np.column_stack([s["temperature"], forcing]) @ table.heat.T.astype(float)
    carbon = np.column_stack([s["carbon"], emissions]) @ table.carbon.T.astype(float)
    after = dict(
        damage=damage,
        production=production,
        output=output,
        consumption=consumption,
        utility=utility,
    )
    after |= dict(
        savings=save,
        mitigation=mitigate,
        export_limit=export,
        tariffs=rate[..., TARIFF : TARIFF + C],
    )
    after |= dict(temperature=heat, carbon=carbon, balance=balance + p.years * (exports - imports))
    after["capital"] = retention[:, None] * s["capital"] + p.years * invested
    # The rest at home is a small difference of outputs, and its root amplifies their rounding
    # errors, which are at most 3.3e-7 (measured over 3,000,000). If the amplification is more than
    # threefold, the row counts as undecided. Either outcome of a full purchase is accepted.
    left = np.maximum(0, output - invested - limit) + np.abs(limit - demand)
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = (
            p.home_weight
            * np.sqrt(consumption / left)
            * (consumption / people + p.utility_offset) ** -p.alpha
        )
        margin = cd.nearest_decision(3e-6 / (slope * output), (1 + debt) ** 2)
    events = {
        "bids above the output": asked > output,
        "debt lowers bids": (debt < 0) & (debt > -1),
        "debt stops bids": debt <= -1,
        "no debt": debt >= 0,
        "exports at the limit": demand > limit,
        "exports within the limit": demand < limit,
        "nothing left at home": home < 1e-9 * output,
    }
    return after, dict.fromkeys(("consumption", "utility", "reward.region"), margin), events


TREATIES = (
    "proposals",
    "proposal accepted",
    "proposal refused",
    "own proposal accepted",
    "mitigation agreed on",
)


def treat(
    p: Params, s: cd.TableArrays, rate: np.ndarray, action: np.ndarray, stage: np.ndarray
) -> tuple[cd.TableArrays, cd.TableArrays]:
    """Return state and events after proposals (stage 1) and answers (stage 2)."""
    proposing, answering = (stage == 1)[:, None, None], (stage == 2)[:, None, None]
    offers = rate[..., PROPOSE:ANSWER].reshape(*rate.shape[:2], C, 2)
    promised = np.where(proposing, offers[..., 0], s["promised"])
    requested = np.where(proposing, offers[..., 1], s["requested"])
    accepted = np.where(answering, action[..., ANSWER:] * (1 - np.eye(C)), s["accepted"])
    by_them, of_me = np.swapaxes(accepted, 1, 2), np.swapaxes(requested, 1, 2)
    agreed = np.maximum(promised * by_them, of_me * accepted).max(axis=2)
    least = np.where(answering[..., 0], agreed, s["least_mitigation"])
    answer, others = action[..., ANSWER:] * answering, ~np.eye(C, dtype=bool)
    refused, own = answering & (answer == 0) & others, (answer == 1) & ~others
    events = proposing, (answer == 1) & others, refused, own, answering[..., 0] & (agreed > 0)
    treaty = dict(promised=promised, requested=requested, accepted=accepted, least_mitigation=least)
    return {**s, **treaty}, dict(zip(TREATIES, events, strict=True))


def step(
    p: Params,
    states: np.ndarray,
    action: cd.Actions,
    elapsed: np.ndarray,
    random: RandomStream,
    table: SimpleNamespace,
) -> cd.StepResult:
    """Step (N,) states. action["region"] is (N, C, H)."""
    s = {f.name: states[f.name].astype(np.float64) for f in state(p)}
    (k, stage), acts = period_of(p, elapsed), action["region"]
    rate, acting = acts / p.num_levels, stage == 0
    acted, margin, events = next_period(p, s, rate, np.maximum(1, k), table)
    after, treaties = (
        treat(p, s, rate, acts, stage)
        if p.negotiation
        else ({**s}, dict.fromkeys(TREATIES, stage < 0))
    )
    for name, new in acted.items():
        after[name] = np.where(acting.reshape(-1, *[1] * (new.ndim - 1)), new, s[name])
    warming = after["temperature"][:, 0] - s["temperature"][:, 0]
    output = np.where(acting, acted["output"].sum(axis=1), 0.0)
    first, of_world = (
        acting & (k == 1),
        {"world": np.zeros((len(states), 1))} if p.world_once else {},
    )
    return cd.StepResult(
        state=after,
        reward={"region": np.where(acting[:, None], acted["utility"], 0.0), **of_world},
        terminated=acting & (k == p.num_periods),
        metrics={
            "temperature_rise": warming,
            "output": output,
            "climate_index": (first * MOST_WARMING - warming) / (MOST_WARMING - LEAST_WARMING),
            "economic_index": (output - first * LEAST_OUTPUT) / (MOST_OUTPUT - LEAST_OUTPUT),
        },
        events={
            **{name: happened & acting[:, None] for name, happened in events.items()},
            **treaties,
        },
        margin=margin,
    )


def observe(
    p: Params, states: np.ndarray, elapsed: np.ndarray, table: SimpleNamespace
) -> cd.Observation:
    """Return observations by group, (N, C, 1043) for regions, and masks (N, C, choices) with
    negotiation.
    """
    s = {f.name: states[f.name].astype(np.float64) for f in state(p)}
    (k, stage), n, one = period_of(p, elapsed), len(states), np.ones((len(states), C))
    people, skill, intensity, cost = (
        getattr(table, name)[k].astype(float)
        for name in ("population", "technology", "intensity", "mitigation_cost")
    )
    world, output, utility, made = (
        table.world[k].astype(float),
        s["output"],
        s["utility"],
        s["production"],
    )
    parts = [
        s["temperature"] / 10,
        s["carbon"] / 1e4,
        world[:, [FORCING, LAND]],
        elapsed[:, None] / 100,
    ]
    parts += [stage[:, None]] * p.negotiation
    parts += [
        s["capital"] / 1e4,
        one * world[:, [RETENTION]],
        people / 1e4,
        output / 1e3,
        s["savings"] * output / 1e3,
    ]
    parts += [
        s["consumption"] / 1e3,
        s["savings"],
        s["mitigation"],
        s["export_limit"],
        s["balance"] / 1e3,
    ]
    common = np.concatenate([*parts, s["tariffs"].reshape(n, -1) / 100], axis=1)[:, None, :]
    own = [
        skill / 100,
        intensity * 10,
        cost,
        one * s["damage"][:, None],
        cost * s["mitigation"] ** p.theta_2,
    ]
    own += [made / 1e3, utility, utility * world[:, [DISCOUNT]], utility * (stage == 0)[:, None]]
    own += [s["least_mitigation"]] * p.negotiation
    parts = [np.broadcast_to(np.eye(C), (n, C, C)), np.stack(own, axis=-1)]
    for name in ("promised", "requested", "accepted") * p.negotiation:
        parts += [s[name], np.swapaxes(s[name], 1, 2)]
    if not p.world_once:
        parts.insert(1, np.broadcast_to(common, (n, C, common.shape[2])))
    obs = {"region": np.concatenate(parts, axis=-1)} | ({"world": common} if p.world_once else {})
    if not p.negotiation:
        return cd.Observation(obs)
    mask, levels = np.ones((n, C, groups(p)[0].choices), bool), constants(p)["LEVELS"]
    mask[..., levels : 2 * levels] = (
        np.arange(levels) >= np.rint(p.num_levels * s["least_mitigation"])[..., None]
    )
    return cd.Observation(obs, mask={"region": mask})


def sample_states(
    p: Params, rng: np.random.Generator, n: int, table: SimpleNamespace
) -> np.ndarray:
    """Draw diverse states: any warming, wealth, debts, surpluses, tariffs and agreements."""
    states = np.zeros(n, SPEC.state_dtype(p))
    states["temperature"] = rng.uniform(0.1, 9.0, (n, 2))
    states["carbon"] = rng.uniform((500, 300, 1500), (6000, 3000, 2500), (n, 3))
    states["damage"] = rng.uniform(0.5, 1.0, n)
    states["capital"] = np.exp(rng.uniform(np.log(0.05), np.log(1000), (n, C)))
    for name in ("production", "output", "consumption"):
        states[name] = np.exp(rng.uniform(np.log(0.01), np.log(100), (n, C)))
    states["utility"] = rng.uniform(0, 1.5, (n, C))
    states["balance"] = (
        table.capital * rng.normal(0, 0.1, (n, C)) * rng.choice([0.3, 1.0, 30.0], (n, C))
    )
    for f in state(p)[9:]:  # levels, many of them 0
        levels, whole = (2, 1) if f.name == "accepted" else (p.num_levels, p.num_levels)
        states[f.name] = (
            rng.integers(0, levels, (n, *f.shape)) * (rng.random((n, *f.shape)) < 0.7) / whole
        )
    return states


# ---- heuristic and drawing ----


def heuristic(
    p: Params, obs: "torch.Tensor", group: str, table: SimpleNamespace
) -> tuple["torch.Tensor", ...]:
    """Return actions (N, C) of each head: save 0.3, cut 0.3, no trade.

    With negotiation: save 0.2, and offer, accept and make all cuts.
    """
    none = 0 * (obs[..., 0] > 0)
    if group == "world":
        return (none,)
    level = [none + round(rate * p.num_levels) for rate in (0.2, 0.3, 0.9)]
    if not p.negotiation:
        return level[1], level[1], *[none] * (PROPOSE - 2)
    agreed = sum(
        (obs[..., LEAST] * p.num_levels > k - 0.5) * 1 for k in range(1, constants(p)["LEVELS"])
    )
    return level[0], none + agreed, *[none] * (PROPOSE - 2), *[level[2]] * (2 * C), *[none + 1] * C


def draw(
    canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int, table: SimpleNamespace
) -> None:
    """Draw the century so far: climate, regions from poor to rich, and actions or proposals."""
    stages, start, end = constants(p)["STAGES"], 2015, 2015 + p.years * p.num_periods
    canvas.view(0, 166, -3, top=86)
    canvas.last_step = stages * p.num_periods
    steps = elapsed - np.arange(len(states))[::-1]
    past, years = (
        states[steps % stages == 0],
        start + p.years * (steps[steps % stages == 0] // stages),
    )
    made = past[years > start]
    rank = np.argsort(np.argsort(table.capital / table.population[0])) / (C - 1)
    colors = [canvas.mix(canvas.mix(POOR, MIDDLE, 2 * r), RICH, 2 * r - 1) for r in rank]
    layers, wealth = (
        {"air": POOR, "sea": RICH, "deep sea": MIDDLE},
        {"rich at first": RICH, "poor": POOR},
    )
    charts: tuple[tuple[str, np.ndarray, tuple[float, float], dict[str, str]], ...] = (
        ("Warming since 1900, K", past["temperature"], (0, 8), {"air": POOR, "sea": RICH}),
        ("Carbon, 1000 Gt", past["carbon"] / 1000, (0, 4), layers),
        ("Output, trillion $", made["output"], (1e-3, 1e3), wealth),
        ("Consumed, trillion $", made["consumption"], (1e-3, 1e3), wealth),
        ("Savings", made["savings"], (0, 1), wealth),
        ("Mitigation", made["mitigation"], (0, 1), wealth),
    )
    for place, (title, values, y, legend) in enumerate(charts[: 4 if p.negotiation else 6]):
        left, bottom = 54.7 * (place // 2), 44 - 44 * (place % 2)
        ticks = None if y[0] else [(v, f"{v:g}") for v in np.linspace(*y, 5)]
        xs, of = (
            years[len(years) - len(values) :],
            list(legend.values()) if len(legend) == values.shape[1] else colors,
        )
        lines = [(xs, values[:, i], of[i]) for i in range(values.shape[1])]
        box = (left, bottom, left + 53, bottom + 41)
        canvas.chart(
            box, lines, (start, end), y, title, ticks, legend=legend, powers=y[0] > 0, ends=True
        )
    if p.negotiation:
        # or not answered yet
        now, accepted = states[-1], states[-1]["accepted"].T * (elapsed % stages != 1)
        hue = np.where(accepted[..., None] == 1, (0, 158, 115), (138, 138, 138))
        for bottom, rates, bars, *titles in (
            (46, "promised", "least_mitigation", "Row offers column", "Row's duty"),
            (2, "requested", "mitigation", "Row asks of column", "Row's cut"),
        ):
            canvas.image(245 + (hue - 245) * now[rates][..., None], 113, bottom, 146, bottom + 33)
            canvas.panel((148, bottom, 164, bottom + 33), (0, 1), (0, 1), 3.7).bars(
                now[bars], colors
            )
            canvas.text((113, bottom + 36), titles[0], 3.7, anchor="lm")
            canvas.text((148, bottom + 36), titles[1], 3.7, anchor="lm")


TRAINING = {
    "num_envs": 256, "steps": 1_000_000,
    "ppo": {
        "learning_rate": ((0, 1e-3), (1_000_000, 5e-5)), "num_steps": 20, "num_minibatches": 8,
        "gamma": 0.99,
        "ent_coef": 0.001, "normalize_obs": True, "normalize_reward": True,
    },
}  # fmt: skip
OLDER = {"debt_formula": "product", "num_periods": 3, "full_rate": True}
SPEC = cd.EnvSpec(
    name="rice_n",
    params=Params,
    state=state,
    groups=groups,
    time_limit="terminates",
    reference=cd.Reference(reset, step, observe, sample_states),
    constants=constants,
    table_fields=table_fields,
    tables=tables,
    metrics=dict.fromkeys(
        ("temperature_rise", "output", "climate_index", "economic_index"), "float"
    ),
    heuristic=heuristic,
    display=cd.Display(
        draw=draw,
        trail=60,
        size=(1280, 812),
        fps=8,
        showcase={
            "still": 1.0,
            "readable": 480,
            "figures": {
                "temperature_rise": "temperature rise since 2015, K",
                "output": "output in sum, trillion $",
            },
        },
    ),
    training=TRAINING,
    cases=({}, {"negotiation": True}, OLDER, {"negotiation": True, "world_once": True}),
    summary="27 regions save, cut emissions and trade for a century, with negotiation if asked "
    "for (RICE-N).",
)
