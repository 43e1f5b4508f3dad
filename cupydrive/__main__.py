"""The command line: ``cupydrive envs | info | new | check | demo | bench``. Exit code 0 only on success."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from cupydrive.errors import CupydriveError

Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class Envs:
    """List the environments, or all parameters of one."""

    name: Annotated[str, tyro.conf.Positional] = ""
    """Environment to show in full."""

    def run(self):
        """Print the list; return the exit code."""
        from cupydrive import envs

        if self.name:
            describe(envs.get(self.name))
            return 0
        for name in envs.names():
            spec = envs.get(name)
            params = spec.make_params()
            shapes = ", ".join(f"{g.count} {g.name} (obs {g.obs_dim}, {g.action_space})" for g in spec.groups(params))
            print(f"{name:<16}{spec.summary}\n{'':<16}{shapes}; {params.max_episode_steps} steps\n")
        print("cupydrive envs NAME shows the parameters of one.")
        return 0


@dataclass(frozen=True)
class Info:
    """Print versions, GPUs, compiler and cache."""

    def run(self):
        """Print what is here; return the exit code."""
        from cupydrive.info import info

        print(info())
        return 0


@dataclass(frozen=True)
class New:
    """Write the two files of a new environment."""

    name: tyro.conf.Positional[str]
    """Name of the environment and of its files."""
    folder: Path = Path(".")
    """Where to write them."""

    def run(self):
        """Write the files; return the exit code."""
        from cupydrive.new import new

        python, kernel = new(self.name, self.folder)
        print(f"wrote {python} and {kernel}\nnext: cupydrive check {python}")
        return 0


@dataclass(frozen=True)
class Check:
    """Check kernels against their NumPy reference and executors against each other; exit code 1 on any failure."""

    names: tyro.conf.Positional[tuple[str, ...]]
    """Environments, or paths of their Python files, or 'all'."""
    agent_steps: int = 100_000
    """Steps of one agent to compare with the reference, at least, on each device."""
    device: Device = "auto"
    """Where to run: auto is all that can be used here."""
    seed: int = 0
    """Seed of states, actions and parameters."""
    json: Path | None = None
    """Write the reports to this file."""

    def run(self):
        """Check and print each report as it is done; return the exit code."""
        from cupydrive import envs
        from cupydrive.check import check
        from cupydrive.report import write_json

        names = envs.names() if "all" in self.names else self.names
        if not names:
            raise CupydriveError("check what? Name environments, or 'all'; `cupydrive envs` lists them")
        reports = []
        try:
            for name in names:
                report = check(name, agent_steps=self.agent_steps, device=self.device, seed=self.seed)
                print(report, flush=True)
                reports.append(report)
        finally:
            if self.json is not None:
                write_json(self.json, reports)
        return 0 if all(r.passed for r in reports) else 1


@dataclass(frozen=True)
class Demo:
    """Check the three environments briefly, then time random rollouts on this machine."""

    device: Device = "auto"
    """Where to run."""

    def run(self):
        """Check and time; return the exit code."""
        from cupydrive import envs
        from cupydrive.bench import rollouts
        from cupydrive.check import check
        from cupydrive.executors import choose, executor

        name, reason = choose(self.device)
        print(reason)
        reports = []
        for env in envs.names():
            reports.append(check(env, agent_steps=20_000, device=name))
            print(reports[-1], flush=True)
        where = executor(name)
        print(f"\nrandom rollouts on {where.describe()}, median of several runs:")
        rollouts(where)
        return 0 if all(r.passed for r in reports) else 1


@dataclass(frozen=True)
class Bench:
    """Time random rollouts, compilation and creation; see cupydrive/bench.py for what is timed and how."""

    device: Device = "auto"
    """Where to run."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self):
        """Time and print; return the exit code."""
        from cupydrive.bench import bench

        bench(self.device, self.json)
        return 0


Command = (
    Annotated[Envs, tyro.conf.subcommand("envs")]
    | Annotated[Info, tyro.conf.subcommand("info")]
    | Annotated[New, tyro.conf.subcommand("new")]
    | Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def describe(spec):
    """Print groups and parameters of one environment."""
    params = spec.make_params()
    print(f"{spec.name}: {spec.summary}")
    for g in spec.groups(params):
        print(f"  {g.name}: {g.count} x obs ({g.obs_dim},), action {g.action_space}{', may leave' * g.leaves}")
    print("  parameters:")
    for f in fields(spec.params):
        meta = f.metadata
        limits = " | ".join(meta["choices"]) if meta["choices"] else f"{meta['low']:g} to {meta['high']:g}"
        if isinstance(f.default, bool):
            limits = "True | False"
        unit = f" [{meta['unit']}]" if meta["unit"] else ""
        default = f"{f.default:.6g}" if isinstance(f.default, float) else f.default
        print(f"    {f.name} = {default}{unit} ({limits})  {meta['help']}")


def main(arguments=None):
    """Run the command line and return its exit code: 0 success, 1 a failed check, 2 a mistake, 130 interrupted."""
    command = tyro.cli(Command, prog="cupydrive", description=__doc__, args=arguments)
    try:
        return command.run()
    except CupydriveError as error:
        print(f"cupydrive: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("cupydrive: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
