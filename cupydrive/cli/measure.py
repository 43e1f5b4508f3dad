"""The commands that measure this machine: bench, tune, profile."""

import shlex
from functools import partial
from typing import Annotated

import tyro

from cupydrive.cli.commands import check_writable, params_of, write_json_file
from cupydrive.cli.options import DeviceOption, Int, JsonFile, Name, Pairs, parsed, read, unsaid
from cupydrive.errors import ParameterError


def run_bench(
    cases: Annotated[tuple[str, ...], tyro.conf.Positional, unsaid(metavar="[CASE...]")] = (),
    device: DeviceOption = "auto",
    runs: int = 9,
    env: Annotated[tuple[str, ...], unsaid(metavar="NAME|FILE.py ...")] = (),
    sweep: Annotated[tuple[str, ...], unsaid(metavar="NAME=V1,V2,... ...")] = (),
    gpus: Annotated[str | None, unsaid(metavar="N|all")] = None,
    json_file: JsonFile = None,
) -> int:
    """Time this machine beside its own limits.

    Args:
        cases: What to time: rollout, stepping, sampling, training; by default all but training.
        device: Where to run; "auto": CUDA where a GPU is usable, else the CPU.
        runs: Timed runs of each; medians are reported.
        env: Time these environments alone; of one, rollouts and stepping by the sizes of --sweep.
        sweep: Sizes to vary: num_envs, steps (of a launch) or a parameter of the environment, such
            as num_envs=100,1000.
        gpus: With training: train on so many GPUs of this machine, one process each, with as many
            environments for each as one has (weak scaling), and as many for all (strong scaling).
        json_file: Write the result to this file.
    """
    from cupydrive.bench import bench
    from cupydrive.bench.cases import listed
    from cupydrive.bench.cases import sweep_works as combinations
    from cupydrive.executors import choose
    from cupydrive.training.processes import arguments, joined_processes, start_on_gpus

    check_writable(json_file)
    if sweep and len(env) != 1:
        raise ParameterError(
            f"--sweep needs --env with one environment to vary; it names {len(env)}"
        )
    if gpus is not None and (code := start_on_gpus(gpus, device)) is not None:
        return code
    command = shlex.join(["cupydrive", *arguments.get()])
    with joined_processes(device) as first:  # before a library has looked for GPUs
        if sweep:
            axes = parsed(sweep).items()  # words are no JSON: setting=gas1,gas2
            work = combinations(
                env[0],
                {k: [read(w) for w in v.split(",")] if isinstance(v, str) else v for k, v in axes},
            )
        else:
            work = [one for name in env for one in listed(name, choose(device)[0])]
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
    """Measure how this device runs an environment fastest, and remember it for layout="tuned" and
    num_envs="auto".

    Args:
        name: An environment, or the path of a .py file that defines one.
        num_envs: Number of copies.
        device: Where to run; "auto": CUDA where a GPU is usable, else the CPU.
        training: Find the number of copies that trains fastest instead.
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
    """Say what an environment's kernel costs on this device, what binds it, and what to try.

    Args:
        name: An environment, or the path of a .py file that defines one.
        num_envs: Number of copies.
        steps: Steps of a launch; by default 32, or as many as fit.
        device: Where to run; "auto": CUDA where a GPU is usable, else the CPU.
        param: Parameters of the environment, such as grid_length=20.
        json_file: Write all figures to this file.
    """
    from cupydrive.profiling.profile import profile

    check_writable(json_file)
    result = profile(name, num_envs=num_envs, steps=steps, device=device, **params_of(name, param))
    print(result, flush=True)
    if json_file is not None:
        write_json_file(json_file, result.to_dict())
    return 0
