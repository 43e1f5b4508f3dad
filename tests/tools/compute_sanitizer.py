"""Run every environment's and the learner's kernels under compute-sanitizer: memcheck, racecheck
and synccheck.

The kernels that serve torch's learner run under memcheck alone: they have neither shared memory nor
barriers.

    python tests/tools/compute_sanitizer.py [TOOL PROGRAM ...]

Needs a GPU and compute-sanitizer on PATH; exit code 1 if any tool finds anything. The programs run
beside each other: each takes minutes, most of them on one core. CuPy's memory pool is off in them:
inside a pool an access past the end of an array is not seen.

Under racecheck no kernel of a library is watched, and matrix products do without cuBLAS, whose
kernels for Hopper end with a hardware exception there.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "synccheck")
WATCHED_BY_ALL = ("rollouts", "learning", "images", "sequences", "scans", "playing")
RUNS = (
    *((tool, program) for tool in TOOLS for program in WATCHED_BY_ALL),
    ("memcheck", "training"),
)
OF_LIBRARIES = "^_Z|nvjet|cutlass|cudnn|gemm"  # ours are extern "C"
TEAMS = (1, 4, 32, 128)
ENVS = 101  # with 64 a block one is full, the last one is not
# continuous Tag finds neighbours in cells; its own cases are smaller
CELLS = {"num_taggers": 3, "num_runners": 297}
ROOT = Path(__file__).resolve().parents[2]


def without_pool():
    """Let CuPy take every array from the driver."""
    import cupy

    cupy.cuda.set_allocator(None)
    cupy.cuda.set_pinned_memory_allocator(None)


def without_cublas():
    """Let torch multiply matrices by its elementwise kernels."""
    import torch

    def mm(a, b, *, out_dtype=None, out=None):
        product = (a[:, :, None].float() * b.float()).sum(1)
        return product.to(out_dtype or a.dtype) if out is None else out.copy_(product)

    def addmm(added, a, b, *, out_dtype=None, out=None):
        total = mm(a, b, out_dtype=torch.float32) + added
        return total.to(out_dtype or a.dtype) if out is None else out.copy_(total)

    def linear(x, weight, bias=None):
        product = mm(x.reshape(-1, x.shape[-1]), weight.T).view(*x.shape[:-1], -1)
        return product if bias is None else product + bias

    torch.mm, torch.addmm, torch.nn.functional.linear = mm, addmm, linear
    torch.Tensor.__matmul__ = mm


def roll_out_each():
    """Reset, step and roll out all cases of all environments with several team sizes; return how
    many there are.
    """
    import masked

    from cupydrive import envs
    from cupydrive.codegen.layout import Layout
    from cupydrive.errors import MemoryLimitError
    from cupydrive.executors.cuda import CudaExecutor
    from cupydrive.simulation.batch import Batch

    specs = [envs.get(name).with_made_up_tables() for name in envs.names()]
    specs.append(envs.register(masked.PYTHON, masked.KERNEL))
    works = [(spec, case, team) for spec in specs for case in spec.cases for team in TEAMS]
    works.append((envs.get("tag_continuous"), CELLS, max(TEAMS)))
    device = CudaExecutor()
    done = 0
    for spec, case, team in works:
        params = spec.make_params(**case | {"max_episode_steps": 3})
        layout = Layout(team, 1 if team > 32 else 64 // team).fit(spec, params, device.shared_bytes)
        try:
            roll_out(Batch(spec, ENVS, params, device, layout=layout))
            done += 1
        except MemoryLimitError as error:
            print(f"left out, {spec.name} by teams of {team}: {error}")
    return done


def roll_out(batch):
    """Reset, step and roll out a batch, in all ways that its kernels have."""
    import cupy

    batch.reset(0)
    batch.rollout(5)
    written = batch.rollout(5, final_obs=False)
    pointers = [batch.executor.pointer(written.action[g.name][0]) for g in batch.groups]
    batch.step(pointers)
    batch.step(pointers, autoreset=False)
    mask = cupy.zeros(ENVS, bool)
    mask[::3] = True
    batch.reset(mask=mask)
    batch.executor.synchronize()


def train_each():
    """Train two iterations of every algorithm by torch, launched one by one; return how many there
    are.
    """
    import cupydrive as cd

    return train_lessons("torch", [
        ("cartpole", cd.PPO(num_steps=8, normalize_obs=True, normalize_reward=True)),
        ("point", cd.PPO(num_steps=8, distribution="squashed")),
        ("masked", cd.A2C(num_steps=8)),
        ("tag_continuous", cd.A2C(num_steps=4)),
        ("point", cd.DDPG(batch_size=32, buffer_size=1000, learning_starts=100)),
    ])  # fmt: skip


def learn_each():
    """Train two iterations by the learner's kernels in both arithmetics, of every head; return how
    many there are.
    """
    import cupydrive as cd
    from cupydrive.algorithms.kernels import tensor

    done = sum(train_lessons("kernels", [
        ("cartpole", cd.PPO(num_steps=8, normalize_obs=True, normalize_reward=True, target_kl=0.01, precision=precision)),
        ("cartpole", cd.PPO(num_steps=8, shared_layers=True, hidden=(16,), precision=precision)),
        ("point", cd.PPO(num_steps=8, distribution="squashed", precision=precision)),
        ("masked", cd.A2C(num_steps=8, precision=precision)),
        ("tag_continuous", cd.A2C(num_steps=4, hidden=(64, 64), activation="relu", precision=precision)),
        ("pendulum", cd.PPO(num_steps=8, hidden=(32, 16, 24), precision=precision)),
        ("tag_continuous", cd.A2C(num_steps=2, hidden=(128, 128), precision=precision)),
        ("pendulum", cd.PPO(num_steps=8, network=cd.Network(hidden=(40, 24), layer_norm=True), precision=precision)),
        ("cartpole", cd.PQN(num_steps=8, hidden=(64, 64), precision=precision)),
    ]) for precision in ("float32", "bfloat16"))  # fmt: skip
    # under a sanitizer so many rows as warp groups are for would take hours
    tensor.MANY_GROUP_ROWS = 1
    return done + train_lessons(
        "kernels",
        [("cartpole", cd.PPO(num_steps=8, shared_layers=shared)) for shared in (True, False)],
    )


def learn_images():
    """Train two iterations of networks of images in both arithmetics; return how many there are."""
    import cupydrive as cd

    return sum(train_lessons("kernels", [
        ("minatar_breakout", cd.PPO(num_steps=4, precision=precision)),
        ("minatar_breakout", cd.PPO(num_steps=4, network=cd.Network(hidden=(128, 128)), precision=precision)),
        ("minatar_breakout", cd.PQN(num_steps=4, precision=precision)),
    ]) for precision in ("float32", "bfloat16"))  # fmt: skip


def learn_sequences(backend="kernels"):
    """Train two iterations of networks with hidden state in both arithmetics; return how many there
    are.
    """
    import cupydrive as cd

    gru = cd.Network(hidden=(16,), core=cd.GRU(16), shared=True)
    mingru = cd.Network(hidden=(24, 16), core=cd.MinGRU(16), layer_norm=True)
    return sum(train_lessons(backend, [
        ("cartpole", cd.PPO(num_steps=8, num_minibatches=1, normalize_obs=True, target_kl=0.01, network=gru, precision=precision)),
        ("masked", cd.A2C(num_steps=9, network=mingru, precision=precision)),
        ("tag_continuous", cd.A2C(num_steps=4, network=cd.Network(hidden=(), core=cd.GRU(32)), precision=precision)),
    ]) for precision in ("float32", "bfloat16"))  # fmt: skip


def learn_by_scans():
    """Train networks with hidden state by torch, whose modules scan sequences; return how many there
    are.
    """
    return learn_sequences("torch")


def play_each():
    """Collect rollouts in one launch, with and without hidden state, by warp sets of one and of several
    environments; return how many there are.
    """
    from itertools import product

    import test_play

    done = 0
    for case, precision in product(test_play.CASES, ("float32", "bfloat16")):
        run = test_play.made(case, "cuda", precision)
        for envs in test_play.sizes_of_warp_sets(run):
            run.rollout.play = test_play.warp_sets_of(run, envs)
            run.rollout.collect()
            done += 1
    return done


def train_lessons(learner, lessons):
    """Train two iterations of each pair of an environment's name and settings; return how many
    there are.
    """
    import masked
    import point

    import cupydrive as cd

    for example in (point, masked):
        cd.register(example.PYTHON, example.KERNEL)
    for env, settings in lessons:
        steps = 2 * 37 * settings.num_steps
        cd.train(
            env,
            settings,
            num_envs=37,
            steps=steps,
            device="cuda",
            backend=learner,
            cuda_graph=False,
            progress=False,
        )
    return len(lessons)


WATCHED = {
    "rollouts": roll_out_each,
    "training": train_each,
    "learning": learn_each,
    "images": learn_images,
    "sequences": learn_sequences,
    "scans": learn_by_scans,
    "playing": play_each,
}


def sanitize(tool, program):
    """Run one watched program under one tool and print its findings; return the exit code and
    whether memory ran out.
    """
    command = [
        "compute-sanitizer",
        "--tool",
        tool,
        "--error-exitcode",
        "1",
        *(("--kernel-name-exclude", f"regex={OF_LIBRARIES}") if tool == "racecheck" else ()),
        sys.executable,
        __file__,
        program,
        tool,
    ]
    folders = [ROOT, *(ROOT / "tests" / name for name in ("examples", "kernels", "kernels/play"))]
    paths = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
    # Neither CuPy's pool nor torch's: inside a pool an access past the end is not seen.
    environment = {**os.environ, "PYTHONPATH": paths, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    output = done.stdout + done.stderr
    lines = output.strip().splitlines()
    shown = [line for line in lines if line.startswith("left out")] + lines[
        -12 if done.returncode else -2 :
    ]
    print(f"{tool} of {program}: exit code {done.returncode}", *shown, sep="\n  ", flush=True)
    # the last: its own memory was short
    alone = "out of ?memory|MemoryLimitError|left out|Internal Sanitizer Error"
    return done.returncode, bool(re.search(alone, output, re.IGNORECASE))


def main(runs):
    """Run programs under tools; those that ran out of memory beside the others run again, one by
    one.
    """
    with ThreadPoolExecutor(len(runs)) as pool:
        found = dict(zip(runs, pool.map(lambda run: sanitize(*run), runs), strict=True))
    for run, (_, no_memory) in found.items():
        if no_memory:
            found[run] = sanitize(*run)
    return max(code for code, _ in found.values())


if __name__ == "__main__":
    names = sys.argv[1:]
    if names and names[0] in WATCHED:
        without_pool()
        if "racecheck" in names[1:]:
            without_cublas()
        print(f"{WATCHED[names[0]]()} {names[0]}")
    else:
        sys.exit(main(list(zip(names[::2], names[1::2], strict=True)) or RUNS))
