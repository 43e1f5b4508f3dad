"""The commands that measure this machine: bench, tune, profile."""

import shlex
from functools import partial
from itertools import chain
from typing import Annotated

import tyro

from cupydrive.cli.commands import check_writable, params_of, write_json_file
from cupydrive.cli.options import (
    DeviceOption,
    Int,
    JsonFile,
    Name,
    Pairs,
    Several,
    parsed,
    read,
    unsaid,
)
from cupydrive.errors import ParameterError


def run_bench(
    cases: Annotated[tuple[str, ...], tyro.conf.Positional, unsaid(metavar="[CASE...]")] = (),
    device: DeviceOption = "auto",
    runs: int = 9,
    env: Annotated[Several, unsaid(metavar="NAME|FILE.py ...")] = (),
    sweep: Annotated[Several, unsaid(metavar="NAME=V1,V2,... ...")] = (),
    gpus: Annotated[str | None, unsaid(metavar="N|all")] = None,
    json_file: JsonFile = None,
) -> int:
    """Benchmark this machine, and compare the results with its hardware limits.

    Args:
        cases: Cases to time: rollout, stepping, sampling, training. Defaults to all but training.
        device: "auto" is CUDA if there is a usable GPU, otherwise the CPU.
        runs: Number of timed runs of each case. Medians are reported.
        env: Time only these environments. --sweep requires exactly one.
        sweep: Sizes to vary: num_envs, steps (of a launch) or a parameter of the environment, such
            as num_envs=100,1000.
        gpus: With training: number of GPUs of this machine, with one process each. Measures weak
            scaling (equal number of environments per GPU) and strong scaling (equal total number).
        json_file: Write the result to this file.
    """
    from cupydrive.bench import bench
    from cupydrive.bench.cases import listed
    from cupydrive.bench.cases import sweep_works as combinations
    from cupydrive.executors import choose
    from cupydrive.training.processes import arguments, joined_processes, start_on_gpus

    check_writable(json_file)
    names = list(chain.from_iterable(env))
    if sweep and len(names) != 1:
        raise ParameterError(f"--sweep needs --env with one environment, got {len(names)}")
    if gpus is not None and (code := start_on_gpus(gpus, device)) is not None:
        return code
    command = shlex.join(["cupydrive", *arguments.get()])
    with joined_processes(device) as first:  # before any library initializes CUDA
        if sweep:
            axes = parsed(sweep).items()  # lists of words, such as setting=gas1,gas2, are no JSON
            work = combinations(
                names[0],
                {k: [read(w) for w in v.split(",")] if isinstance(v, str) else v for k, v in axes},
            )
        else:
            work = [one for name in names for one in listed(name, choose(device)[0])]
        say = partial(print, flush=True) if first else None
        result = bench(
            cases or None,
            device=device,
            runs=runs,
            work=work or None,
            command=command,
            progress=say,
        )
    if json_file is not None and first:
        write_json_file(json_file, result.to_dict())
    return 130 if result.interrupted else 0


def run_tune(
    name: Name, num_envs: int = 10_000, device: DeviceOption = "auto", training: bool = False
) -> int:
    """Find the fastest layout of an environment on this device, and store it for layout="tuned" and
    num_envs="auto".

    Args:
        name: An environment, or the path of a .py file that defines one.
        num_envs: Number of environments.
        device: "auto" is CUDA if there is a usable GPU, otherwise the CPU.
        training: Instead find the number of environments that trains fastest.
    """
    from cupydrive.profiling.tuner import best_num_envs, tune

    if training:
        print(f"{best_num_envs(name, device=device):,} environments")
    else:
        print(tune(name, num_envs, device=device))
    return 0


def run_profile(
    name: Name,
    num_envs: int = 10_000,
    steps: Int = None,
    device: DeviceOption = "auto",
    param: Pairs = (),
    json_file: JsonFile = None,
) -> int:
    """Profile an environment's kernel on this device: report its costs, its bottleneck, and
    suggestions.

    Args:
        name: An environment, or the path of a .py file that defines one.
        num_envs: Number of environments.
        steps: Number of steps per launch. Defaults to 32, or as many as fit.
        device: "auto" is CUDA if there is a usable GPU, otherwise the CPU.
        param: Parameters of the environment, such as grid_length=20.
        json_file: Write all measurements to this file.
    """
    from cupydrive.profiling.profile import profile

    check_writable(json_file)
    result = profile(name, num_envs=num_envs, steps=steps, device=device, **params_of(name, param))
    print(result, flush=True)
    if json_file is not None:
        write_json_file(json_file, result.to_dict())
    return 0
