"""Tables of ``rice_n`` that do not depend on actions: regions, people, technology, price of a cut.

Coefficients of the regions are read from the files of its source. All values are computed in
float64 and rounded once, to the float32 of a table.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cupydrive.inputs.data import files
from cupydrive.inputs.tables import Table

if TYPE_CHECKING:
    from cupydrive.envs.rice_n import Params

C = 27  # regions
# Transition matrices of air and sea over a period. The last column is the effect of forcing
# [K m^2/W] or emissions [Gt a/Gt].
HEAT = (0.8718, 0.0088, 0.1005), (0.025, 0.975, 0.0)
CARBON = (0.88, 0.196, 0.0, 1.36388), (0.12, 0.797, 0.001465, 0.0), (0.0, 0.007, 0.99853488, 0.0)


def table_fields(p: "Params") -> tuple[Table, ...]:
    """Return the tables: (C,), and (P + 1, C) and (P + 1, 4) with a row for each period."""
    over_time = (p.num_periods + 1, C)
    return (
        Table("capital", (C,), low=0.05, high=20.0, unit="10^12 $, initially"),
        Table("population", over_time, low=20.0, high=2000.0, unit="10^6"),
        Table("technology", over_time, low=0.5, high=40.0),
        Table("intensity", over_time, low=0.1, high=2.0, unit="Gt/(10^12 $)"),
        Table(
            "mitigation_cost",
            over_time,
            low=0.02,
            high=0.4,
            unit="share of output, of all mitigation",
        ),
        Table("productivity", over_time, low=0.2, high=15.0, unit="10^12 $, with a capital of 1"),
        Table("world", (p.num_periods + 1, 4), low=0.05, high=1.0),
        Table("heat", (2, 3), unit="K per K, K m^2/W"),
        Table("carbon", (3, 4), unit="Gt per Gt, Gt/a"),
    )


def tables(p: "Params") -> dict[str, np.ndarray]:
    """Return the tables by name in float64."""
    regions = [path for _, path in sorted(files("rice_n").items())]
    names = ("xK_0", "xL_0", "xL_a", "xl_g", "xA_0", "xg_A", "xdelta_A", "xsigma_0")
    capital, people, limit, speed, technology, growth, slowing, intensity = coefficients(
        regions, names
    )
    lines, world = [(people, technology, intensity, 0 * people, 0 * people)], [(0.0, 0.0, 0.0, 1.0)]
    for k in range(p.num_periods):
        passed = p.years * k
        cost = p.backstop_price / 1000 * (1 - p.backstop_decline) ** k / p.theta_2 * intensity
        productivity = technology * (people / 1000) ** (1 - p.gamma)
        people = people * ((1 + limit) / (1 + people)) ** speed
        technology = technology * (np.exp(p.technology_growth) + growth * np.exp(-slowing * passed))
        intensity = intensity * np.exp(
            -p.intensity_decline * (1 - p.intensity_slowing) ** passed * p.years
        )
        lines.append((people, technology, intensity, cost, productivity))
        forcing = p.forcing_start + min(1.0, k / p.forcing_periods) * (
            p.forcing_end - p.forcing_start
        )
        land, kept = (
            p.land_emissions * (1 - p.land_decline) ** k / C,
            (1 - p.depreciation) ** p.years,
        )
        world.append((forcing, land, kept, (1 + p.rho) ** -(passed + p.years)))
    over = ("population", "technology", "intensity", "mitigation_cost", "productivity")
    over_time = dict(zip(over, np.moveaxis(np.array(lines), 1, 0), strict=True))
    return {
        "capital": capital,
        "world": np.array(world),
        "heat": HEAT,
        "carbon": CARBON,
        **over_time,
    }


def coefficients(paths: Iterable[Path], names: Sequence[str]) -> np.ndarray:
    """Read coefficients, (names, paths) float64, from files with lines ``name: number``."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    found = [
        dict(line.strip().split(": ") for line in text.split("\n") if ": " in line)
        for text in texts
    ]
    return np.array([[float(of_file[name]) for of_file in found] for name in names])
