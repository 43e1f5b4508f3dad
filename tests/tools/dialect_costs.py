"""Counts the float operations of each function of `math::`, by a float that counts, for the page
docs/dialect.md.

    python tests/tools/dialect_costs.py            print them
    python tests/tools/dialect_costs.py --record   write docs/dialect.json

Additions, multiplications, divisions and square roots count as one, a multiplication with addition
(fma) as two; comparisons, conversions, signs and integer operations do not. The numbers are those
of the text as it stands: no machine changes them.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from gymnasium import spaces

from cupydrive import EnvSpec, Field, Group, param
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.batch import Batch

PATH = Path(__file__).resolve().parents[2] / "docs" / "dialect.json"
STEPS = 4
# Statements that leave in y what a function makes of x and z, both above 1.
STATEMENTS = {
    "abs": "y = math::abs(x);",
    "atan2": "y = math::atan2(x, z);",
    "clamp": "y = math::clamp(x, 0.0f, z);",
    "copy_sign": "y = math::copy_sign(x, z);",
    "cos": "y = math::cos(x);",
    "count_trailing_zeros": "y = (float)math::count_trailing_zeros((u32)x);",
    "divide": "y = math::divide(x, z);",
    "Divisor": "math::Divisor by(z); y = by.by;",
    "Divisor::of": "const math::Divisor by(z, 0.5f); y = by.of(x);",
    "exp": "y = math::exp(x);",
    "floor": "y = math::floor(x);",
    "fma": "y = math::fma(x, z, x);",
    "log": "y = math::log(x);",
    "log1p": "y = math::log1p(x);",
    "max": "y = math::max(x, z);",
    "min": "y = math::min(x, z);",
    "popcount": "y = (float)math::popcount((u32)x);",
    "pow": "y = math::pow(x, z);",
    "pow_minus_1": "y = math::pow_minus_1(x, z);",
    "shortest_turn": "y = math::shortest_turn(x, z);",
    "sin": "y = math::sin(x);",
    "sincos": "float other; math::sincos(x, &y, &other);",
    "softplus": "y = math::softplus(x);",
    "sqrt": "y = math::sqrt(x);",
    "tanh": "y = math::tanh(x);",
    "to_int": "y = (float)math::to_int(x);",
    "wrap_angle": "y = math::wrap_angle(x);",
    "wrap_turn": "y = math::wrap_turn(x);",
}
CASES = "\n".join(
    f"    case {k}: {{ {text} break; }}" for k, text in enumerate(STATEMENTS.values(), 1)
)
KERNEL = f"""
struct Params {{ float which; }};
struct State {{ float x, z, y; }};
#include "drive/env.cuh"

DEVICE void reset(Env& env) {{ if (env.team.leader()) env.state = {{1.5f, 1.25f, 0.0f}}; }}

DEVICE bool step(Env& env) {{
  const float x = env.state.x, z = env.state.z;
  float y = 0.0f;
  switch ((int)env.params.which) {{
{CASES}
    default: break;
  }}
  env.state.y = y;
  return false;
}}

DEVICE void observe(Env& env) {{ env.one.obs(0)[0] = env.state.y; }}
"""


@dataclass(frozen=True)
class Params:
    """Which function is called, from 1 on; 0: none."""

    which: float = param(0.0, "Number of a function.", low=0.0, high=1000.0)
    max_episode_steps: int = param(100, "Time limit.", low=1)


SPEC = EnvSpec(
    "costs",
    Params,
    state=lambda p: tuple(Field(name) for name in ("x", "z", "y")),
    groups=lambda p: (Group("one", 1, 1, spaces.Discrete(2)),),
    time_limit="truncates",
    kernel=KERNEL,
)


def operations(which):
    """Return the operations of ``STEPS`` steps that call one function."""
    batch = Batch(
        SPEC, 1, SPEC.make_params(which=float(which)), HostExecutor(threads=1, count=True)
    )
    batch.reset(0)
    before = batch.program.operations
    batch.rollout(STEPS, final_obs=False)
    return batch.program.operations - before


def count():
    """Return the operations of each function by its name."""
    without = operations(0)
    found = {}
    for number, name in enumerate(STATEMENTS, 1):
        found[name], rest = divmod(operations(number) - without, STEPS)
        assert rest == 0, name
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Count the float operations of functions of the dialect."
    )
    parser.add_argument("--record", action="store_true", help="write docs/dialect.json")
    counted = count()
    if parser.parse_args().record:
        PATH.write_text(
            json.dumps(
                {"command": "python tests/tools/dialect_costs.py --record", "operations": counted},
                indent=1,
            )
            + "\n"
        )
    for name, number in counted.items():
        print(f"{name:<16}{number:>4}")
