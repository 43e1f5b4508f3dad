"""Kernels compile for every GPU architecture, without a GPU: NVRTC needs neither device nor
driver.
"""

import re
from dataclasses import replace
from types import SimpleNamespace

import machine_code
import numpy as np
import pytest
from gymnasium import spaces

from cupydrive import envs
from cupydrive.algorithms import A2C, PPO
from cupydrive.algorithms.architecture import GRU, Conv, MinGRU, Network
from cupydrive.algorithms.kernels import tensor
from cupydrive.algorithms.kernels.gradients import Task, exact_forward_unit, exact_gradient_unit
from cupydrive.algorithms.kernels.layerwise_layout import LayerwiseLayout
from cupydrive.algorithms.kernels.layerwise_tensor import convolution_unit
from cupydrive.algorithms.kernels.layout import OBSERVED_BITS, NetworkLayout, observed_rows
from cupydrive.algorithms.kernels.play import play_unit, policies_of
from cupydrive.algorithms.kernels.resident import GROUP_RESIDENT, group_bytes
from cupydrive.codegen.diagnostics import NVRTC_WARNINGS, explain_compile_error
from cupydrive.codegen.layout import WARP, Layout, Observations, PlayLayout
from cupydrive.codegen.source import (
    KERNELS,
    assemble,
    assemble_file,
    box_bounds,
    column_words,
    head_sizes,
)
from cupydrive.executors.ranks import Shard
from cupydrive.playing.policy import make_distribution
from cupydrive.spec import Group
from cupydrive.training.begin import make_run

# Of architectures `make test` has the oldest and the newest, which are on either side of what
# kernels/drive distinguishes (80, 90); the other tests of this file compile for 90.
ARCHITECTURES = [
    a if a in (75, 120) else pytest.param(a, marks=pytest.mark.slow)
    for a in (75, 80, 86, 89, 90, 100, 120)
]
CASES = [(name, dict(case)) for name in envs.names() for case in envs.get(name).cases]
# agents: more in one thread nobody runs, and NVRTC takes 12 s for each such case of continuous Tag
MANY = 50


def compiled(unit, architecture):
    """Return NVRTC's result code and log."""
    return compile_to(unit, f"sm_{architecture}")[:2]


def compile_to(unit, architecture):
    """Return NVRTC's result code, log and PTX with the options that CuPy passes."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    _, program = nvrtc.nvrtcCreateProgram(unit.text.encode(), b"unit.cu", 0, [], [])
    options = [
        "-std=c++17",
        "--fmad=false",
        "-ftz=true",
        "--device-as-default-execution-space",
        f"-arch={architecture}",
        *NVRTC_WARNINGS,
    ]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    # written to in place: one byte would be the b" " that all of Python shares
    log = b" " * (size + 1)
    nvrtc.nvrtcGetProgramLog(program, log)
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = b" " * (size + 1)
    nvrtc.nvrtcGetPTX(program, ptx)
    return int(code), log.decode().strip("\0 \n"), ptx.decode().strip("\0 ")


def agents(spec, params):
    return sum(g.count for g in spec.groups(params))


def layout(spec, params):
    team = min(256, 1 << (agents(spec, params) - 1).bit_length())
    return Layout(team, max(1, 64 // team) if team <= 32 else 1).fit(spec, params, 99 * 1024)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", envs.names())
def test_each_environment_compiles_without_a_warning(name, architecture):
    spec = envs.get(name)
    # compile soonest
    fewest = min((spec.make_params(**case) for case in spec.cases), key=lambda p: agents(spec, p))
    assert compiled(assemble(spec, fewest, layout(spec, fewest)), architecture) == (0, "")


def middling(name, case):
    """Return whether agents are many, but another case of the environment has more of them."""
    spec = envs.get(name)
    counts = [agents(spec, spec.make_params(**other)) for other in spec.cases]
    return MANY < agents(spec, spec.make_params(**case)) < max(counts)


@pytest.mark.full
@pytest.mark.parametrize(("name", "case"), [
    pytest.param(name, case, marks=pytest.mark.slow if middling(name, case) else ()) for name,
    case in CASES
])  # fmt: skip
def test_each_case_compiles_for_its_team_and_far_memory(name, case):
    spec = envs.get(name)
    params = spec.make_params(**case)
    for chosen in (layout(spec, params), Layout(64, 1, False, False, Observations.STAGED)):
        assert compiled(assemble(spec, params, chosen), 90) == (0, "")


@pytest.mark.full
@pytest.mark.parametrize(("name", "case"), [
    pytest.param(name, case, marks=pytest.mark.slow if agents(spec, spec.make_params(**case)) > MANY else ())
    for name, case in CASES for spec in (envs.get(name),)
])  # fmt: skip
def test_each_case_compiles_for_a_team_of_one(name, case):
    """Those of many agents only in `make test-all`; a CPU has no other teams, so that its tests
    compile them too.
    """
    spec = envs.get(name)
    params = spec.make_params(**case)
    assert compiled(assemble(spec, params, Layout(1, 32).fit(spec, params, 2000)), 90) == (0, "")


NETWORK = (
    ("OBS", 5),
    ("PARAMETERS", 10),
    ("TOWERS", 2),
    ("LAYERS", 3),
    ("RELU", 0),
    ("TILE", 8),
    ("PACKED_IN_SHARED", 1),
    ("CHUNK_IN_SHARED", 1),
)
LOSS = (
    ("AGENT_GROUPS", 2),
    ("SEQUENCES", 0),
    ("CLIPPED", 1),
    ("CLIP_VALUE", 1),
    ("NORMALIZE", 1),
    ("STORES", 1),
)
WIDTHS = "constexpr int WIDTH[TOWERS][LAYERS + 1] = {{5, 64, 17, 10}, {5, 64, 17, 1}};\n#define CATEGORICAL 1\n#define GAUSSIAN 0\n"
CUT = (("MOST_OUT", 128), ("MOST_IN", 128), ("SLAB", 64), ("STAGES", 3))
DRAWN = (("HEADS", 2), ("CHOICES", 10), ("LARGEST", 7))
TILED = (*NETWORK, ("ROWS", 64), *CUT, *LOSS, ("HEADS", 2), ("CHOICES", 10))
ONE_TOWER = tuple((name, 1 if name == "TOWERS" else value) for name, value in TILED)
ONE_WIDTHS = "constexpr int WIDTH[TOWERS][LAYERS + 1] = {{5, 64, 40, 11}};\n#define CATEGORICAL 1\n#define GAUSSIAN 0\n"
NO_HIDDEN_LAYER = tuple((name, 1 if name == "LAYERS" else value) for name, value in TILED)
NO_WIDTHS = "constexpr int WIDTH[TOWERS][LAYERS + 1] = {{5, 10}, {5, 1}};\n#define CATEGORICAL 1\n#define GAUSSIAN 0\n"
# A part of a network with hidden state, of 5 inputs and 15 outputs.
SEQUENCES = (("AGENT_GROUPS", 2), ("SEQUENCES", 1))
PART = (
    *(("OBS", 5), ("PARAMETERS", 10), ("TOWERS", 1), ("LAYERS", 1), ("RELU", 0), ("TILE", 8)),
    *SEQUENCES,
)
CHAIN = "constexpr int WIDTH[TOWERS][LAYERS + 1] = {{5, 15}};\n#define PACK_FIRST 1\n"
IMAGES = (
    *(("OBS", 12), *PART[1:], ("IMAGE_HEIGHT", 7), ("IMAGE_WIDTH", 5), ("CHANNELS", 3)),
    *(("SPAN", 2), ("STRIDE", 2), ("ABREAST", 4), ("OBSERVES", 1), ("TOTAL_FLOATS", 4096)),
)
NORM = (
    ("HEAD", 0),
    ("HEAD_STRIDE", 0),
    ("GAIN_STRIDE", 16),
    ("BIASES_AT", 320),
    ("TOTAL_FLOATS", 4096),
)
STRIDES = (
    *((name, 16) for name in ("PARAMETERS_STRIDE", "VALUE_STRIDE", "REPORTED_STRIDE")),
    ("VALUE_AT", 10),
)
BLOCK = 128  # threads of a team of the learner's kernels
FILES = [
    ("train/categorical", (("HEADS", 2), ("CHOICES", 10), ("LARGEST", 7)), head_sizes((3, 7))),
    (
        "train/gaussian",
        (("HEADS", 2), ("SQUASHED", 1)),
        box_bounds(spaces.Box(-1.0, np.float32([1, 2]))),
    ),
    (
        "train/mixed",
        (("HEADS", 4), ("DISCRETE", 2), ("CHOICES", 10), ("LARGEST", 7), ("SQUASHED", 1)),
        head_sizes((3, 7)) + box_bounds(spaces.Box(-1.0, np.float32([1, 2]))),
    ),
    ("train/epsilon_greedy", (("HEADS", 1), ("CHOICES", 7), ("LARGEST", 7)), ""),
    ("train/advantages", (), ""),
    ("train/episodes", (("AGENT_GROUPS", 2), ("COLUMNS", 2)), ""),
    ("train/shuffle", (), ""),
    ("train/opponents", (), ""),
    ("tools/draws", (), ""),
    ("train/finite", (("ARRAYS", 2), ("STRIDE", 4)), ""),
    ("train/carry", (("ARRAYS", 2),), ""),
    ("train/report", (("NAMES", 3), ("LEARNERS", 2), ("ARRAYS", 2)), ""),
    ("train/schedule", (), ""),
    ("tools/ceilings", (), ""),
    ("tools/fused", (), ""),
    ("train/gather", (("COLUMNS", 3),), column_words((76, 1, 2))),
    ("learn/initial", (), ""),
    ("learn/statistics", (), ""),
    ("learn/minibatches", (("AGENT_GROUPS", 2), ("SEQUENCES", 0), ("SHUFFLED", 1)), ""),
    ("learn/exact/forward", (*NETWORK, *DRAWN), WIDTHS + head_sizes((3, 7))),
    (
        "learn/exact/gradient",
        (*NETWORK, *LOSS, ("HEADS", 2), ("CHOICES", 10)),
        WIDTHS + head_sizes((3, 7)),
    ),
    ("learn/update", NETWORK, WIDTHS),
    ("learn/mma/tensor_forward", (*NETWORK, ("ROWS", 16), *DRAWN), WIDTHS + head_sizes((3, 7))),
    ("learn/mma/warp_forward", (*NETWORK, ("ROWS", 32), *DRAWN), WIDTHS + head_sizes((3, 7))),
    ("learn/wide/wide_weights", (*NETWORK, ("ROWS", 16)), WIDTHS),
    ("learn/wide/wide_forward", (*NETWORK, ("ROWS", 16), *DRAWN), WIDTHS + head_sizes((3, 7))),
    ("learn/wide/wide_gradient", TILED, WIDTHS + head_sizes((3, 7))),
    ("learn/wide/wide_sums", TILED, WIDTHS + head_sizes((3, 7))),
    ("learn/wide/wide_gradient", TILED, WIDTHS + head_sizes((3, 7)) + "\n" + OBSERVED_BITS),
    ("learn/wide/wide_sums", TILED, WIDTHS + head_sizes((3, 7)) + "\n" + OBSERVED_BITS),
    ("learn/mma/tensor_gradient", TILED, WIDTHS + head_sizes((3, 7))),
    ("learn/mma/tensor_gradient", NO_HIDDEN_LAYER, NO_WIDTHS + head_sizes((3, 7))),
    (
        "learn/mma/tensor_gradient",
        ONE_TOWER,
        ONE_WIDTHS + "#define LAYER_NORM 1\n#define BLOCKS_PER_TILE 2\n" + head_sizes((3, 7)),
    ),
    ("learn/mma/resident", TILED, WIDTHS + head_sizes((3, 7))),
    ("learn/mma/gru", (("SIZE", 64),), ""),
    (
        "learn/mma/conv",
        (*IMAGES, ("OUT", 20), ("ROWS", 64), ("STAGED_BYTES", 4096), ("NORMALIZED", 1)),
        "#define OBSERVED OBSERVED_BITS\n",
    ),
    (
        "learn/mma/conv",
        (*IMAGES, ("OUT", 20), ("ROWS", 64), ("STAGED_BYTES", 4096), ("NORMALIZED", 0)),
        "#define OBSERVED OBSERVED_ONE_HOT\n#define OBS_VALUES 3\n",
    ),
    (
        "learn/layerwise/part",
        (*PART, ("ADDS", 1), ("TOTAL_FLOATS", 4096)),
        CHAIN + "#define OBSERVES 0\n",
    ),
    (
        "learn/layerwise/conv",
        IMAGES,
        CHAIN.replace("5", "12", 1) + "#define ACTIVATE_LAST 1\n#define OBSERVES 1\n",
    ),
    ("learn/layerwise/gru", PART, CHAIN),
    ("learn/layerwise/take", (*SEQUENCES, ("STATE", 20)), ""),
    (
        "learn/layerwise/rows",
        (("OBS", 5), ("OBS_STRIDE", 8), ("STRIDE", 24), ("RELU", 1), *SEQUENCES),
        "#define HALF 1",
    ),
    (
        "learn/layerwise/norm",
        (("ENTRIES", 20), ("POSITIONS", 12), ("STRIDE", 240), ("RELU", 0), *NORM, *SEQUENCES),
        "#define HALF 0",
    ),
    (
        "learn/layerwise/norm",
        (
            ("ENTRIES", 300),
            ("POSITIONS", 1),
            ("STRIDE", 304),
            ("RELU", 0),
            ("HEAD", 6),
            ("HEAD_STRIDE", 8),
            *NORM[2:],
            *SEQUENCES,
        ),
        "#define HALF 1",
    ),
    (
        "learn/layerwise/norm_loss",
        (
            *(("OBS", 5), ("PARAMETERS", 10), ("TOWERS", 1), ("LAYERS", 1), ("RELU", 1)),
            *(("ENTRIES", 128), ("POSITIONS", 1), ("STRIDE", 128), ("HEAD", 11), ("VALUE_AT", 10)),
            ("TOTAL_FLOATS", 128 * 13 + 11 + 16),
            *LOSS,
            ("HEADS", 2),
            ("CHOICES", 10),
        ),
        CHAIN + "#define HALF 1\n#define CATEGORICAL 1\n#define GAUSSIAN 0\n" + head_sizes((3, 7)),
    ),
    (
        "learn/layerwise/totals",
        (("MATRICES", 32),),
        "#define HALF 1",
    ),
    (
        "learn/layerwise/loss",
        (
            *PART[:-2],
            *LOSS[:1],
            ("SEQUENCES", 1),
            *LOSS[2:],
            *STRIDES,
            ("HEADS", 2),
            ("CHOICES", 10),
        ),
        CHAIN + "#define CATEGORICAL 1\n#define GAUSSIAN 0\n" + head_sizes((3, 7)),
    ),
    (
        "learn/layerwise/mingru",
        (("SIZE", 128), ("UNITS", 2), ("X_STRIDE", 128), ("ROWS_STRIDE", 384)),
        "#define APPROXIMATE 1",
    ),
    ("learn/hopper/group_resident", ONE_TOWER, ONE_WIDTHS + head_sizes((3, 7))),
    ("learn/hopper/group_gradient", TILED, WIDTHS.replace("17", "40") + head_sizes((3, 7))),
]
WARP_GROUPS = 90  # the one architecture that has wgmma
MATRIX_UNITS = 80  # the first architecture whose matrix units take bfloat16


PLAYED = [  # by policies in one launch: environment, algorithm, environments of a warp set
    ("cartpole", PPO(shared_layers=True), 16),
    ("pendulum", PPO(distribution="squashed", normalize_obs=True), 1),
    ("tag_grid", A2C(hidden=(20, 16)), 2),
    ("tag_grid", A2C(network=Network(hidden=(32,), core=MinGRU(32), shared=True)), 4),
    ("cartpole", PPO(network=Network(hidden=(20,), core=GRU(32))), 16),
]


def played(name, settings, envs, tensor=False):
    """Return the unit in which policies play, of four warp sets a block."""
    run = make_run(name, settings, num_envs=envs, device="cpu", backend="kernels")
    policies = [
        replace(policy, tensor=tensor) for policy in policies_of(run.batch, run.rollout.player_of)
    ]
    return play_unit(run.batch, policies, PlayLayout(1, envs, warp_sets=4))


def unit_of(name, constants, generated):
    """Return the unit of one of ``FILES`` for the team that a GPU gets."""
    by_blocks = (constants and constants[0][0] == "OBS") or name == "learn/mma/gru"
    by_warps = name.startswith("learn/layerwise/norm")
    team = WARP if by_warps else BLOCK if by_blocks else 1
    return assemble_file(name, constants, generated, team)


def test_every_kernel_that_is_no_environments_is_compiled_here():
    files = {
        p.relative_to(KERNELS).with_suffix("").as_posix()
        for p in KERNELS.rglob("*.cu")
        if p.parent.name != "envs"
    }
    assert files == {path for path, _, _ in FILES}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("name", "constants", "generated"), FILES, ids=[path for path, _, _ in FILES]
)
def test_other_kernels_compile_without_a_warning(name, constants, generated, architecture):
    if name.startswith(("learn/mma/", "learn/wide/")) and architecture < MATRIX_UNITS:
        pytest.skip("its matrix units do not take bfloat16: it learns by exact kernels")
    unit = unit_of(name, constants, generated)
    if unit.architecture_specific and architecture != WARP_GROUPS:
        pytest.skip("it has no wgmma")
    assert compiled(unit, f"{architecture}a" if unit.architecture_specific else architecture) == (
        0,
        "",
    )


@pytest.mark.full
@pytest.mark.parametrize(("name", "settings", "envs"), PLAYED, ids=[name for name, _, _ in PLAYED])
@pytest.mark.parametrize(
    ("architecture", "tensor"),
    [(75, False), pytest.param(90, False, marks=pytest.mark.slow), (MATRIX_UNITS, True)],
)
def test_policies_and_their_environments_compile_as_one(name, settings, envs, architecture, tensor):
    assert compiled(played(name, settings, envs, tensor), architecture) == (0, "")


def each_kernel():
    """Yield one unit of every environment and of all others."""
    for name in envs.names():
        spec = envs.get(name)
        params = spec.make_params(**spec.cases[0])
        yield pytest.param(assemble(spec, params, layout(spec, params)), id=name)
    yield pytest.param(PLAYED[0], id="env_play")
    for name, constants, generated in FILES:
        yield pytest.param(unit_of(name, constants, generated), id=name)


def joined_kernels():
    """Yield one unit of each kind that runs launch together; the first of each way to make a kernel
    in `make test`, too.
    """
    few = {
        "env_play",
        "tag_grid",
        "learn/statistics",
        "learn/update",
        "learn/exact/gradient",
        "learn/mma/tensor_gradient",
    }
    for case in each_kernel():
        yield pytest.param(
            *case.values, id=case.id, marks=() if case.id in few else pytest.mark.slow
        )


@pytest.mark.full
@pytest.mark.parametrize("unit", list(joined_kernels()))
def test_kernels_of_members_compile_without_a_warning(unit):
    unit = (played(*unit) if isinstance(unit, tuple) else unit).of_members()
    assert compiled(unit, "90a" if unit.architecture_specific else 90) == (0, "")


@pytest.mark.full
@pytest.mark.parametrize("unit", list(each_kernel()))
def test_kernels_wait_for_what_came_before_them_and_touch_no_memory_until_then(unit):
    """Those that wait by themselves may read what is older, in each of their branches."""
    unit = played(*unit) if isinstance(unit, tuple) else unit
    ptx = compile_to(unit, "compute_90")[2]  # which makes no machine code
    entries = dict(part.split("(", 1) for part in ptx.split(".entry ")[1:])
    assert set(entries) == set(unit.kernels)
    for name, body in entries.items():
        before, *after = body.split("griddepcontrol.wait;")
        ahead = f"KERNEL_AHEAD({name}," in unit.text
        assert len(after) == 1 or (ahead and after), name
        touching = "st|atom|red" if ahead else "ld|st|atom|red|cp"
        touched = re.search(rf"\b({touching})\.(?!param|local|shared)\S+.*", before)
        assert touched is None, (name, touched)


def test_an_error_names_file_line_and_source_line():
    spec = envs.get("cartpole")
    unit = assemble(spec, spec.make_params(), Layout(1, 32))
    broken = replace(unit, text=unit.text.replace("s.x += p.tau", "s.x += p.tua"))
    code, log = compiled(broken, 90)
    assert code != 0
    message = str(explain_compile_error(broken, log))
    assert "kernels/envs/cartpole.cu:" in message and "s.x += p.tau * s.x_dot" in message


# Settings, entries of an observation, and bytes of a block's shared memory: what GPUs of sm_90,
# sm_86 and sm_75 have.
NETWORKS = [
    pytest.param(PPO(shared_layers=True), 4, 227 * 1024, id="shared"),
    pytest.param(PPO(hidden=(48, 80, 16)), 20, 64 * 1024, id="narrowing"),
    pytest.param(A2C(hidden=(256, 256)), 76, 99 * 1024, marks=pytest.mark.slow, id="wide"),
    pytest.param(PPO(), 4, 227 * 1024, marks=pytest.mark.slow, id="separate"),
    pytest.param(A2C(), 1207, 99 * 1024, marks=pytest.mark.slow, id="long"),
]


def shared_bytes(unit):
    """Return the shared memory that a block of ``unit`` asks for."""
    architecture = "compute_90a" if unit.architecture_specific else "compute_90"
    return int(re.search(r"block_bytes = (\d+)", compile_to(unit, architecture)[2])[1])


@pytest.mark.full
@pytest.mark.parametrize(("config", "entries", "limit"), NETWORKS)
def test_rows_weights_and_gradients_that_are_near_fit_into_a_block(config, entries, limit):
    group = Group("g", 1, entries, spaces.Discrete(2))
    distribution = make_distribution(group, config.distribution)
    layout = NetworkLayout.of(config, entries, distribution.size)
    executor = SimpleNamespace(max_team=1024, team_bytes=limit, processors=132)
    rows, forward = exact_forward_unit(layout, distribution, executor, 2**20)
    gradient = exact_gradient_unit(
        Task(executor, layout, distribution, config, Shard(2**16), 32, [1])
    )
    for unit, tile in (
        (forward, rows),
        (gradient, int(re.search(r"int TILE = (\d+)", gradient.text)[1])),
    ):
        assert tile >= 1 and shared_bytes(unit) <= limit


# Images, channels and kernels of which 16 patches or more fit, and bytes of a block's shared memory.
PATCHES = [((10, 10, 4), 64, 3, 227), ((10, 10, 9), 256, 6, 227), ((44, 44, 4), 160, 8, 227), ((9, 9, 8), 192, 4, 99)]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize(("image", "channels", "kernel", "kilobytes"), PATCHES)
def test_patches_and_kernels_of_a_convolution_fit_into_a_block(
    image, channels, kernel, kilobytes, layer_norm
):
    conv = Conv((channels,), kernel)
    config = PPO(network=Network(conv=conv, layer_norm=layer_norm, shared=True))
    group = Group("g", 1, action_space=spaces.Discrete(2), obs_shape=image, obs_dtype="uint8")
    distribution = make_distribution(group, config.distribution)
    about = config.network, image, distribution.size, observed_rows(group, False)
    executor = SimpleNamespace(max_team=1024, team_bytes=kilobytes * 1024, processors=132)
    task = Task(executor, LayerwiseLayout.made(*about), distribution, config, Shard(2**12), 32, [1])
    unit = convolution_unit(task, conv.layers(image)[0])
    assert shared_bytes(unit) <= executor.team_bytes


@pytest.mark.full
@pytest.mark.parametrize(
    ("entries", "hidden"), [(4, (64, 64)), (1, (33,)), (31, (64, 40)), (63, (64,))]
)
def test_one_block_of_a_warp_group_has_at_most_the_bytes_that_it_was_chosen_by(entries, hidden):
    """What lies at multiples of 1,024 bytes leaves gaps, which are counted as if all were whole."""
    config, group = (
        PPO(hidden=hidden, shared_layers=True),
        Group("g", 1, entries, spaces.Discrete(2)),
    )
    distribution = make_distribution(group, config.distribution)
    layout = NetworkLayout.of(config, entries, distribution.size)
    executor = SimpleNamespace(max_team=1024, team_bytes=227 * 1024, processors=1)
    unit = tensor.tensor_gradient_unit(
        Task(executor, layout, distribution, config, Shard(16), 32, [1]), GROUP_RESIDENT
    )
    counted = group_bytes(layout.towers[0])
    assert counted - 8 * 1024 <= shared_bytes(unit) <= counted


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "params"), [("rice_n", {}), ("tag_continuous", {"num_taggers": 5, "num_runners": 300})]
)
def test_an_environment_of_one_thread_takes_little_local_memory(name, params):
    """The driver reserves it for every thread that a GPU can hold: 45 KB were 12 GB on an H100."""
    pytest.importorskip("cuda.bindings.nvrtc")
    kernels = machine_code.functions(machine_code.cubin((name, params, Layout(1, 1)), 90))
    assert set(kernels) == {"env_reset", "env_step", "env_rollout"}
    assert max(kernel["frame"] for kernel in kernels.values()) <= 4096
