"""Machine code of the environments' and the learner's kernels, by NVRTC, without a GPU: registers,
spills and bytes of each.

    python tests/tools/machine_code.py new.json                 writes them
    python tests/tools/machine_code.py new.json --to old.json   and shows what differs from those of another commit

Equal code is equal speed. Of code that differs, more registers or spilled bytes are a warning; only
a GPU says what they cost. NVRTC itself writes a few instructions in another order now and then.
"""

import argparse
import hashlib
import json
import re
import struct
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cupydrive import envs
from cupydrive.algorithms import PPO
from cupydrive.algorithms.architecture import GRU, MinGRU, Network
from cupydrive.algorithms.kernels import gradients, play, resident, statistics, tensor, wide
from cupydrive.algorithms.kernels.layout import NetworkLayout
from cupydrive.algorithms.kernels.tensor import Way
from cupydrive.codegen.layout import Layout, Observations, PlayLayout
from cupydrive.codegen.source import assemble
from cupydrive.executors.nvrtc import OPTIONS
from cupydrive.executors.ranks import Shard
from cupydrive.playing.policy import make_distribution
from cupydrive.training.begin import make_run

LAYOUT_BYTES = 99 * 1024
STAGED = Observations.STAGED
ONE = [Layout(1, 256), Layout(1, 32), Layout(1, 256, half_obs=True)]
FEW = {"num_taggers": 2, "num_runners": 3, "num_other_agents_observed": 3}
CASES = [
    *((name, {}, layout) for name in envs.names() if "tag" not in name for layout in ONE),
    *(("cartpole", {}, Layout(1, 64, near, near, Observations.DIRECT)) for near in (True, False)),
    *(
        ("tag_grid", {}, layout)
        for layout in (
            Layout(1, 64),
            Layout(1, 128, observations=Observations.DIRECT),
            Layout(8, 16),
        )
    ),
    ("tag_grid", {}, Layout(8, 16, half_obs=True)),
    ("tag_grid", {"num_taggers": 30, "use_full_observation": True}, Layout(32, 2)),
    *(
        ("tag_grid", {"num_taggers": 999, "grid_length": 100}, layout)
        for layout in (Layout(256), Layout(256, rows_on_chip=False), Layout(1024))
    ),
    *(("tag_continuous", FEW, layout) for layout in (Layout(1, 64), Layout(8, 8))),
    *(
        ("tag_continuous", {}, layout)
        for layout in (Layout(128), Layout(128, observations=STAGED), Layout(64, half_obs=True))
    ),
    ("tag_continuous", {}, Layout(128, 1, False, False, STAGED)),
    *(
        ("tag_continuous", {"num_taggers": 5, "num_runners": 1000}, Layout(n, observations=STAGED))
        for n in (256, 512)
    ),
]
# PPO of CartPole: settings, number of environments, and a file of kernels/learn or a ``Way`` to
# compute gradients.
EXACT = ("exact/gradient", "exact/forward", "update", "minibatches")
GRADIENTS = [
    Way("mma/tensor_gradient", 128, 256),
    Way("mma/tensor_gradient", 64, 128),
    tensor.GROUPS,
]
RESIDENT = [Way("mma/resident", 32, 256), resident.GROUP_RESIDENT]
WIDE = ("wide/wide_weights", "wide/wide_forward", "wide/wide_gradient", "wide/wide_sums", "update")
LEARNERS = [
    *(
        ({"shared_layers": shared}, n, file)
        for shared in (True, False)
        for n in (65_536, 256)
        for file in EXACT
    ),
    *(({"shared_layers": shared}, 65_536, way) for shared in (True, False) for way in GRADIENTS),
    *(
        ({"shared_layers": shared}, n, "mma/forward")
        for shared in (True, False)
        for n in (2**20, 256)
    ),
    *(({"shared_layers": way is resident.GROUP_RESIDENT}, 16, way) for way in RESIDENT),
    ({"shared_layers": True, "activation": "relu"}, 16, RESIDENT[0]),
    ({"shared_layers": True, "activation": "relu"}, 16, RESIDENT[1]),
    *(({"hidden": (256, 256)}, 4096, file) for file in WIDE),
    ({}, 65_536, "statistics"),
]
# Settings of PPO, an environment, its environments in a warp set, and whether policies use tensor cores.
PLAYERS = (
    [({"shared_layers": True}, "cartpole", 16, tensor_cores) for tensor_cores in (False, True)]
    + [
        ({"hidden": (20, 16), "activation": "relu"}, "tag_grid", 2, tensor_cores)
        for tensor_cores in (False, True)
    ]
    + [
        (
            {"network": Network(hidden=(64,), core=core, activation="relu", shared=True)},
            "cartpole",
            16,
            tensor_cores,
        )
        for core in (MinGRU(64, layers=1), GRU(64))
        for tensor_cores in (False, True)
    ]
)
H200 = SimpleNamespace(max_team=1024, team_bytes=227 * 1024, processors=132)
REGISTERS, FRAME = 0x2F, 0x11  # attributes of the section .nv.info: of a function, by its symbol


def environment_unit(name, given, layout):
    """Return the ``Unit`` of one environment under one layout."""
    spec = envs.get(name)
    params = spec.make_params(**given)
    return assemble(
        spec, params, layout.fit(spec, params, LAYOUT_BYTES) if layout.state_on_chip else layout
    )


def learner_unit(given, n, file):
    """Return the ``Unit`` of one file of the learner for ``n`` environments of CartPole, as an H200
    gets it.
    """
    config, spec = PPO(**given), envs.get("cartpole")
    group = spec.groups(spec.make_params())[0]
    distribution = make_distribution(group, config.distribution)
    layout = NetworkLayout.of(config, group.obs_dim, distribution.size)
    network, sizes = (layout, distribution), (Shard(n), config.num_steps, [1])
    if isinstance(file, Way):
        return tensor.tensor_gradient_unit(gradients.Task(H200, *network, config, *sizes), file)
    make = {
        "exact/gradient": lambda: gradients.exact_gradient_unit(
            gradients.Task(H200, *network, config, *sizes)
        ),
        "exact/forward": lambda: gradients.exact_forward_unit(*network, H200, n)[1],
        "mma/forward": lambda: tensor.tensor_forward_unit(*network, H200, n)[1],
        "minibatches": lambda: gradients.minibatch_unit(
            gradients.Task(H200, *network, config, Shard(65_536), 32, [1])
        ),
        "statistics": statistics.statistics_unit,
        "update": lambda: layout.unit("update", H200),
        "wide/wide_weights": lambda: wide.weights_unit(layout, H200),
        "wide/wide_forward": lambda: wide.wide_forward_unit(*network, H200, n)[1],
        "wide/wide_gradient": lambda: wide.gradient_units(
            gradients.Task(H200, *network, config, *sizes)
        )[0],
        "wide/wide_sums": lambda: wide.gradient_units(
            gradients.Task(H200, *network, config, *sizes)
        )[1],
    }
    return make[file]()


def player_unit(given, name, num_envs, tensor_cores):
    """Return the ``Unit`` of a rollout in one launch."""
    run = make_run(name, PPO(**given), num_envs=num_envs, device="cpu", backend="kernels")
    policies = [
        replace(policy, tensor=tensor_cores)
        for policy in play.policies_of(run.batch, run.rollout.player_of)
    ]
    return play.play_unit(run.batch, policies, PlayLayout(1, num_envs, warp_sets=4))


def unit_of(case):
    """Return the ``Unit`` of one case."""
    if case in PLAYERS:
        return player_unit(*case)
    return learner_unit(*case) if case in LEARNERS else environment_unit(*case)


def cubin(case, architecture):
    """Return the machine code of one case."""
    from cuda.bindings import nvrtc

    unit = unit_of(case)
    text = re.sub(r"^#line.*$", "", unit.text, flags=re.M)
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"unit.cu", 0, [], [])
    options = [*OPTIONS, f"-arch=sm_{architecture}{'a' if unit.architecture_specific else ''}"]
    (code,) = nvrtc.nvrtcCompileProgram(
        program, len(options), [option.encode() for option in options]
    )
    if int(code):
        raise SystemExit(
            f"{case} does not compile: python -m pytest tests/executors/test_nvrtc.py says why"
        )
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    # written to in place: one byte would be the b" " that all of Python shares
    content = b" " * (size + 1)
    nvrtc.nvrtcGetCUBIN(program, content)
    return content


def functions(elf):
    """Return by kernel: bytes and hash of its code, registers, and bytes of its frame (spills among
    them).
    """
    (offset,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + k * size) for k in range(count)]

    def text(table, at):
        begin = sections[table][4] + at
        return elf[begin : elf.index(b"\0", begin)].decode()

    found = {}
    for name, _, _, _, begin, length, *_ in sections:
        title = text(names, name)
        if title.startswith(".text."):
            code = elf[begin : begin + length]
            found[title[6:]] = {"bytes": length, "hash": hashlib.sha256(code).hexdigest()[:12]}
    symbols = next(section for section in sections if section[1] == 2)
    info = next(s for s in sections if text(names, s[0]) == ".nv.info")
    at, end = info[4], info[4] + info[5]
    while at < end:
        form, attribute, length = struct.unpack_from("<BBH", elf, at)
        at += 4
        if form != 4:
            continue
        if attribute in (REGISTERS, FRAME):
            symbol, value = struct.unpack_from("<II", elf, at)
            (name,) = struct.unpack_from("<I", elf, symbols[4] + 24 * symbol)
            key = "registers" if attribute == REGISTERS else "frame"
            found.setdefault(text(symbols[6], name), {})[key] = value
        at += length
    return {
        name: about for name, about in found.items() if "bytes" in about and "registers" in about
    }


def measured(case, architecture):
    """Return the name of one case and what its kernels are."""
    return " ".join(str(part) for part in case if part != {}), functions(cubin(case, architecture))


def main(path, other, architecture, only):
    """Write what the kernels are, and print what differs."""
    with ProcessPoolExecutor() as pool:
        cases = [
            case for case in CASES + LEARNERS + PLAYERS if re.search(only, " ".join(map(str, case)))
        ]
        found = dict(pool.map(measured, cases, [architecture] * len(cases)))
    path.write_text(json.dumps(found, indent=1) + "\n")
    if other is None:
        return
    before, same = json.loads(other.read_text()), 0
    for case, kernels in found.items():
        for kernel, now in kernels.items():
            was = before.get(case, {}).get(kernel)
            same += now == was
            if was is not None and any(
                was[key] != now[key] for key in ("bytes", "registers", "frame")
            ):
                shown = ", ".join(
                    f"{key} {was[key]} -> {now[key]}" for key in ("bytes", "registers", "frame")
                )
                print(f"{case} {kernel}: {shown}")
    print(f"{same} of {sum(map(len, found.values()))} kernels are the same to the byte")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="where to write them, as JSON")
    parser.add_argument("--to", type=Path, help="a file that another commit has written")
    parser.add_argument("--architecture", type=int, default=90)
    parser.add_argument(
        "--only", default="", help="a regular expression: cases whose name has a match"
    )
    given = parser.parse_args()
    main(given.path, given.to, given.architecture, given.only)
