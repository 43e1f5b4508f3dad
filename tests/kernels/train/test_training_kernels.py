"""Each kernel of kernels/train, row by row, against the same thing written in NumPy from its
description.

The random words come from cupydrive/random.py, which is pinned to published vectors: so a kernel
that draws for another purpose, agent, environment, episode or step than it says gives other numbers
here. Sizes are odd, ids do not begin at 0, rows are wider than what is read of them, and every
environment is at a step of its own.
"""

import numpy as np
import pytest
from gymnasium import spaces
from training_kernels import (
    FIRST_AGENT,
    FIRST_ENV,
    SEED,
    build,
    bytes_of,
    categorical,
    clocks,
    epsilon_greedy,
    gaussian,
    launch,
    mixed,
    sample,
    words_with_extremes,
)

from cupydrive.playing.policy import EpsilonGreedy, Gaussian, Mixed
from cupydrive.random import ACTION, DYNAMICS, POLICY, RESET, RandomStream, below, philox, unit

pytestmark = pytest.mark.optimised

SHUFFLE = 4
DEVICES = ["cpu", "debug", pytest.param("cuda", marks=pytest.mark.gpu)]
N, AGENTS = 37, 3
IDS = FIRST_ENV + np.arange(N)
BOX = spaces.Box(np.float32([-1, 0, -3, 2, -0.5]), np.float32([1, 4, 5, 3, 0.5]))
SEED_WORDS = np.array([SEED], np.uint64).view(np.int64)
NAN_OF_A_GPU = np.uint32(0x7FFFFFFF).view(
    np.float32
)  # all bits but the sign; a CPU's has but the highest of its fraction
FAR = 777.0  # what arrays hold before: rows that a kernel leaves out keep it


def policy_stream(clock):
    """Return the stream of policy noise in NumPy."""
    return RandomStream(SEED, IDS, clock["episode"] - 1, clock["elapsed"], POLICY)


def head_words(stream, heads):
    """Return (N, C, H) uint32: one word per head, four heads a draw."""
    draws = [stream.bits(AGENTS, d, FIRST_AGENT) for d in range(-(-heads // 4))]
    return np.concatenate(draws, axis=-1)[..., :heads]


def normal_numbers(stream, heads, first=0):
    """Return (N, C, H) float64 standard normal numbers: Box and Muller's two of two words, in
    pairs, from word ``first`` on.
    """
    count = -(-heads // 4) * 4
    u = unit(head_words(stream, first + count)[..., first:]).astype(np.float64)
    radius, angle = np.sqrt(-2 * np.log(1 - u[..., 0::2])), 2 * np.pi * u[..., 1::2]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    return pairs.reshape(*u.shape)[..., :heads]


def box_actions(parameters, normal, squashed):
    """Return (N, C, H) actions of ``BOX`` before squashing and after it, and (N, C) log-densities,
    of rows (N * C, at least 2 H) and (N, C, H) normal numbers.
    """
    heads = normal.shape[-1]
    mean, log_deviation = (
        parameters[:, k * heads : (k + 1) * heads].reshape(normal.shape).astype(np.float64)
        for k in (0, 1)
    )
    raw = mean + np.exp(log_deviation) * normal
    density = -0.5 * normal**2 - log_deviation - 0.5 * np.log(2 * np.pi)
    if not squashed:
        return raw, raw, density.sum(-1)
    half = (BOX.high - BOX.low).astype(np.float64) / 2
    density -= np.log(1 - np.tanh(raw) ** 2) + np.log(half)
    return raw, BOX.low + half * (np.tanh(raw) + 1), density.sum(-1)


@pytest.mark.quick(2)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_choices_are_the_inverse_of_the_cumulative_distribution(masked, device):
    sizes = (3, 1, 5, 2, 4)  # more than four heads: a second draw
    rng = np.random.default_rng(1)
    clock, ends = clocks(rng, N), np.cumsum(sizes)
    logits = (rng.normal(0, 2, (N * AGENTS, sum(sizes) + 2))).astype(np.float32)
    value = rng.normal(size=(N * AGENTS, 2)).astype(np.float32)
    mask = rng.random((N, AGENTS, sum(sizes))) < 0.6 if masked else None
    rows = np.full((N, AGENTS), FAR, np.float32)
    outputs = dict(
        action=np.full((N, AGENTS, len(sizes)), -1, np.int32),
        log_prob=rows,
        entropy=rows,
        value_row=rows,
    )
    program = categorical(sizes, device)
    got = sample(program, (N, AGENTS), logits, clock, outputs, device, mask, value)
    greedy = sample(program, (N, AGENTS), logits, clock, outputs, device, mask, value, greedy=1)
    u = unit(head_words(policy_stream(clock), len(sizes))).astype(np.float64)
    log_prob, greedy_log_prob, entropy = (np.zeros((N, AGENTS)) for _ in range(3))
    decided = 0
    for head, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        part = logits[:, end - size : end].reshape(N, AGENTS, size).astype(np.float64)
        if masked:
            allowed = mask[..., end - size : end]
            part = np.where(allowed | ~allowed.any(-1, keepdims=True), part, -np.inf)
        p = np.exp(part - part.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        edges = np.cumsum(p, axis=-1)
        certain = np.abs(edges - u[..., head, None]).min(-1) > 1e-5
        want = np.argmax(edges > u[..., head, None], axis=-1)
        np.testing.assert_array_equal(got["action"][..., head][certain], want[certain])
        np.testing.assert_array_equal(greedy["action"][..., head], np.argmax(part, axis=-1))
        for total, action in ((log_prob, got["action"]), (greedy_log_prob, greedy["action"])):
            total += np.log(np.take_along_axis(p, action[..., head, None].astype(int), -1))[..., 0]
        entropy -= np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(-1)
        decided += np.count_nonzero(certain)
    assert decided > 0.99 * N * AGENTS * len(sizes)
    np.testing.assert_allclose(got["log_prob"], log_prob, rtol=0, atol=1e-5)
    np.testing.assert_allclose(greedy["log_prob"], greedy_log_prob, rtol=0, atol=1e-5)
    np.testing.assert_allclose(got["entropy"], entropy, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(got["value_row"].ravel(), value[:, 0])


@pytest.mark.quick(2)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_epsilon_greedy_actions_are_made_of_their_words(masked, device):
    choices, epsilon = 6, np.float32([0.4])
    rng = np.random.default_rng(3)
    clock = clocks(rng, N)
    values = rng.integers(-3, 4, (N * AGENTS, choices + 2)).astype(np.float32)  # often equal ones
    values[0, :choices] = [0, 0.25, 0, 0.25 - 2**-25, 0.25, 0.25 + 2**-25]
    values[1, :choices] = [-8, -7, -9, -7, -8, -9]
    values[2, :choices] = [2**-4 - 1.5 * 2**-25, 0, 2**-4 - 2**-25, 2**-4, 0, 0]
    mask = rng.random((N, AGENTS, choices)) < 0.4 if masked else None
    rows = np.full((N, AGENTS), FAR, np.float32)
    action = np.full((N, AGENTS, 1), -1, np.int32)
    outputs = dict(action=action, log_prob=rows, value_row=rows, epsilon=epsilon)
    program = epsilon_greedy(choices, device)
    given = dict(device=device, mask=mask, kind=EpsilonGreedy)
    got = sample(program, (N, AGENTS), values, clock, outputs, **given)
    greedy = sample(program, (N, AGENTS), values, clock, outputs, greedy=1, **given)
    words = head_words(policy_stream(clock), 2)
    seen = values.reshape(N, AGENTS, -1)[..., :choices]
    allowed = np.ones(seen.shape, bool) if mask is None else mask | ~mask.any(-1, keepdims=True)
    top = np.where(allowed, seen, -np.inf).max(-1, keepdims=True)
    best = np.argmax(allowed & (top - seen <= 2.0**-25), axis=-1)
    explores = unit(words[..., 0]) < epsilon
    rank = below(words[..., 1], allowed.sum(-1))
    drawn = np.argmax(np.cumsum(allowed, axis=-1) == rank[..., None] + 1, axis=-1)
    assert 0.3 < explores.mean() < 0.5 and (not masked or (~mask.any(-1)).any())
    for found, want in ((got, np.where(explores, drawn, best)), (greedy, best)):
        np.testing.assert_array_equal(found["action"][..., 0], want)
        np.testing.assert_array_equal(found["value_row"], top[..., 0])
        value = np.take_along_axis(seen, want[..., None], -1)[..., 0]
        np.testing.assert_array_equal(found["log_prob"], value)
    outputs = dict(action=action, epsilon=epsilon)
    alone = sample(program, (N, AGENTS), values, clock, outputs, **given)
    np.testing.assert_array_equal(alone["action"], got["action"])  # nothing else is written


def test_logits_that_are_not_numbers_leave_the_last_choice_that_has_a_weight():
    clock, action = clocks(np.random.default_rng(0), N), np.full((N, AGENTS, 1), -1, np.int32)
    for logits, last in (
        ([0, np.nan, 5, 1], 3),
        ([5, np.nan, 1, 0], 3),
        ([9, 0, np.nan, -np.inf], 1),
        ([np.nan] * 4, 0),
        ([np.inf] * 4, 0),
        ([-np.inf] * 4, 0),
    ):
        parameters = np.tile(np.float32(logits), (N * AGENTS, 1))
        got = sample(categorical((4,)), (N, AGENTS), parameters, clock, dict(action=action))
        assert (got["action"] == last).all()


def test_what_is_not_asked_for_is_not_written():
    """Neither log-probability nor entropy nor a value: null pointers, which a kernel must not
    follow.
    """
    clock = clocks(np.random.default_rng(0), N)
    action = np.full((N, AGENTS, 1), -1, np.int32)
    got = sample(
        categorical((2,)),
        (N, AGENTS),
        np.zeros((N * AGENTS, 2), np.float32),
        clock,
        dict(action=action),
    )
    assert set(got["action"].ravel()) == {0, 1}
    for kind, program in ((Gaussian, gaussian(BOX, 0)), (Mixed, mixed((2,), BOX, 0))):
        raw = np.full((N, AGENTS, 5 + (kind is Mixed)), FAR, np.float32)
        parameters, asked = np.zeros((N * AGENTS, 12), np.float32), dict(raw=raw, action=raw)
        got = sample(program, (N, AGENTS), parameters, clock, asked, kind=kind)
        assert not (got["action"] == FAR).any() and np.array_equal(got["raw"], got["action"])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("squashed", [0, 1])
def test_gaussian_actions_are_made_of_their_words(squashed, device):
    rng, heads = np.random.default_rng(2), len(BOX.low)
    clock = clocks(rng, N)
    parameters = rng.normal(0, 0.4, (N * AGENTS, 2 * heads + 3)).astype(np.float32)
    value = rng.normal(size=(N * AGENTS, 3)).astype(np.float32)
    entries, rows = (
        np.full((N, AGENTS, heads), FAR, np.float32),
        np.full((N, AGENTS), FAR, np.float32),
    )
    outputs = dict(raw=entries, action=entries, log_prob=rows, value_row=rows)
    for greedy in (0, 1):
        program = gaussian(BOX, squashed, device)
        given = dict(device=device, value=value, kind=Gaussian, greedy=greedy)
        got = sample(program, (N, AGENTS), parameters, clock, outputs, **given)
        normal = np.zeros((N, AGENTS, heads))
        if not greedy:
            normal = normal_numbers(policy_stream(clock), heads)
        raw, action, density = box_actions(parameters, normal, squashed)
        np.testing.assert_allclose(got["raw"], raw, rtol=0, atol=5e-6)
        np.testing.assert_allclose(got["action"], action, rtol=0, atol=1e-5)
        np.testing.assert_allclose(got["log_prob"], density, rtol=0, atol=2e-4)
        np.testing.assert_array_equal(got["value_row"].ravel(), value[:, 0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("sizes", "squashed", "first"), [((3, 2, 4, 2, 5), 1, 8), ((3, 2, 4, 2), 0, 4)]
)
def test_mixed_actions_are_those_of_both_parts(sizes, squashed, first, device):
    """Choices and masks as of the heads alone; numbers from the first draw without their words."""
    rng, count, heads = np.random.default_rng(7), (N, AGENTS), len(sizes)
    clock, choices, numbers = clocks(rng, N), sum(sizes), len(BOX.low)
    parameters = rng.normal(0, 0.4, (N * AGENTS, choices + 2 * numbers + 3)).astype(np.float32)
    value = rng.normal(size=(N * AGENTS, 3)).astype(np.float32)
    mask = (rng.random((*count, choices)) < 0.6).astype(np.uint8)
    rows = np.full(count, FAR, np.float32)
    entries = np.full((*count, heads + numbers), FAR, np.float32)
    alone, discrete = np.full((*count, heads), -1, np.int32), categorical(sizes, device)
    program = mixed(sizes, BOX, squashed, device)
    for greedy in (0, 1):
        given = dict(device=device, mask=mask, greedy=greedy)
        outputs = dict(raw=entries, action=entries, log_prob=rows, value_row=rows)
        got = sample(program, count, parameters, clock, outputs, value=value, kind=Mixed, **given)
        outputs = dict(action=alone, log_prob=rows)
        chosen = sample(discrete, count, parameters, clock, outputs, **given)
        normal = np.zeros((*count, numbers))
        if not greedy:
            normal = normal_numbers(policy_stream(clock), numbers, first)
        raw, action, density = box_actions(parameters[:, choices:], normal, squashed)
        for name in ("raw", "action"):
            np.testing.assert_array_equal(got[name][..., :heads], chosen["action"])
        np.testing.assert_allclose(got["raw"][..., heads:], raw, rtol=0, atol=5e-6)
        np.testing.assert_allclose(got["action"][..., heads:], action, rtol=0, atol=1e-5)
        density = density + chosen["log_prob"]
        np.testing.assert_allclose(got["log_prob"], density, rtol=0, atol=2e-4)
        np.testing.assert_array_equal(got["value_row"].ravel(), value[:, 0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("started", [0.0, 1.0])
def test_exploration_noise_is_made_of_its_words(started, device):
    rng, heads = np.random.default_rng(3), len(BOX.low)
    clock = clocks(rng, N)
    shape = (N, AGENTS, heads)
    mean, before = rng.uniform(-1, 1, shape), rng.normal(0, 0.3, shape)
    damping, deviation = np.float32(0.15), np.float32(0.2)
    arrays = dict(
        seed=SEED_WORDS,
        clock=bytes_of(clock),
        noise_settings=np.float32([damping, deviation]),
        started=np.float32([started]),
        mean=mean.astype(np.float32),
        noise=before.astype(np.float32),
        action=np.full(shape, FAR, np.float32),
    )
    ints = dict(num_envs=N, agents=AGENTS, first_env=FIRST_ENV, first_agent=FIRST_AGENT)
    got = launch(gaussian(BOX, 0, device), "explore", N * AGENTS, ints, arrays, device)
    stream = policy_stream(clock)
    before = np.where(clock["elapsed"][:, None, None] == 0, 0.0, arrays["noise"].astype(np.float64))
    noise = before - damping * before + deviation * normal_numbers(stream, heads)
    if started:
        wanted = arrays["mean"] + noise
    else:
        words = np.stack(
            [stream.bits(AGENTS, 2048 + h, FIRST_AGENT)[..., 0] for h in range(heads)], axis=-1
        )
        wanted = 2.0 * unit(words) - 1.0
    action = BOX.low + (BOX.high - BOX.low) / 2 * (np.clip(wanted, -1, 1) + 1)
    np.testing.assert_allclose(got["noise"], noise, rtol=0, atol=2e-6)
    np.testing.assert_allclose(got["action"], action, rtol=0, atol=1e-5)
    assert ((got["action"] >= BOX.low) & (got["action"] <= BOX.high)).all()
    assert (np.abs(wanted) > 1).any() == bool(started)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("purpose", [RESET, DYNAMICS, ACTION])
def test_words_of_kernels_in_python(purpose, device):
    clock, draws = clocks(np.random.default_rng(4), N), 2
    size = N * AGENTS * draws
    ints = dict(size=size, agents=AGENTS, draws=draws, first_env=FIRST_ENV, purpose=purpose)
    shape = (N + 1, AGENTS, draws, 4)  # the last one is nobody's
    arrays = dict(
        seed=SEED_WORDS,
        clock=bytes_of(clock),
        bits=np.zeros(shape, np.int32),
        uniform=np.zeros(shape, np.float32),
    )
    got = launch(build("tools/draws", device=device), "draw_words", size, ints, arrays, device)
    episode, step = {
        RESET: (clock["episode"], 0),
        DYNAMICS: (clock["episode"] - 1, clock["elapsed"]),
        ACTION: (0, clock["time"] // 4),
    }[purpose]
    words = np.stack(
        [RandomStream(SEED, IDS, episode, step, purpose).bits(AGENTS, d) for d in range(draws)],
        axis=2,
    )
    np.testing.assert_array_equal(got["bits"][:N].view(np.uint32), words)
    np.testing.assert_array_equal(got["uniform"][:N], unit(words))
    assert not got["bits"][N].any() and not got["uniform"][N].any()


# ---- permutations and random rows ----------------------------------------------------------------


def permuted(size, draw=0, count=0, device="cpu", seed=SEED_WORDS):
    arrays = dict(seed=seed, count=np.int64([count]), index=np.full(size + 1, -1, np.int64))
    return launch(
        build("train/shuffle", device=device),
        "shuffle",
        size,
        dict(size=size, draw=draw),
        arrays,
        device,
    )["index"]


def feistel(size, draw, count):
    """Return the permutation as its description says: a Feistel network with Philox's words as
    keys, walked until inside.
    """
    half = next(h for h in range(1, 16) if h == 15 or 4**h >= size)
    low = np.uint64((1 << half) - 1)
    key = [SEED & 0xFFFFFFFF, SEED >> 32]
    counter = (count & 0xFFFFFFFF, count >> 32, draw)
    keys = np.concatenate(
        [philox((*counter, k << 20 | SHUFFLE << 16), key) for k in (0, 1)]
    ).astype(np.uint64)

    def mix(x):
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            x = ((x ^ x >> np.uint64(shift)) * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
        return x ^ x >> np.uint64(16)

    x, outside = np.arange(size, dtype=np.uint64), np.ones(size, bool)
    while outside.any():
        left, right = x[outside] >> np.uint64(half), x[outside] & low
        for k in keys:
            left, right = right, left ^ (mix(right ^ k) & low)
        x[outside] = left << np.uint64(half) | right
        outside = x >= size
    return x.astype(np.int64)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 255, 257, 1023, 1025, 4099, 65_537])
def test_a_shuffle_is_the_permutation_of_its_keys(size, device):
    for draw, count in ((0, 0), (3, 5), (1, (7 << 32) + 2)):
        got = permuted(size, draw, count, device)
        assert got[size] == -1  # what lies behind the rows is not touched
        assert np.array_equal(np.sort(got[:size]), np.arange(size))
        np.testing.assert_array_equal(got[:size], feistel(size, draw, count))


def test_shuffles_of_other_epochs_iterations_and_seeds_have_nothing_in_common():
    """Independent permutations agree in about one place, whatever their length (Poisson of mean 1),
    and do not correlate.
    """
    size, base = 4099, dict(draw=1, count=2)
    first = permuted(size, **base)[:size]
    others = [
        dict(base, draw=0),
        dict(base, draw=2),
        dict(base, count=3),
        dict(base, count=2 + (1 << 32)),
    ]
    others += [dict(base, seed=SEED_WORDS + 1), dict(base, seed=SEED_WORDS + (1 << 32))]
    for other in others:
        second = permuted(size, **other)[:size]
        assert np.count_nonzero(first == second) < 10  # more has probability 1e-7
        assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(size)
    assert np.count_nonzero(first == np.arange(size)) < 10
    assert abs(np.corrcoef(first, np.arange(size))[0, 1]) < 5 / np.sqrt(size)


@pytest.mark.parametrize("device", DEVICES)
def test_random_rows_come_from_their_words_and_reach_every_row(device):
    program, size = build("train/shuffle", device=device), 4001
    for limit, draw, count in ((1, 0, 0), (7, 2, 3), (1000, 1, (5 << 32) + 9), (2**32, 4, 1)):
        arrays = dict(
            seed=SEED_WORDS,
            count=np.int64([count]),
            limit=np.int64([limit]),
            index=np.full(size + 1, -1, np.int64),
        )
        got = launch(program, "draw", size, dict(size=size, draw=draw), arrays, device)["index"]
        assert got[size] == -1
        words = philox(
            (count & 0xFFFFFFFF, np.arange(size), draw, SHUFFLE << 16 | 1),
            (SEED & 0xFFFFFFFF, SEED >> 32),
        )[:, 0]
        np.testing.assert_array_equal(
            got[:size], (words.astype(object) * limit >> 32).astype(np.int64)
        )
        # the first and the last row are drawn, too
        assert limit > 7 or set(got[:size]) == set(range(limit))


# ---- ragged ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "bad", [np.nan, np.inf, -np.inf, pytest.param(NAN_OF_A_GPU, id="NaN of a GPU")]
)
@pytest.mark.parametrize("stride", (4, 64))
def test_a_number_that_is_not_finite_is_found_wherever_it_stands(bad, device, stride):
    constants = ("ARRAYS", 2), ("STRIDE", stride)
    none, program = (1 << 62) - 1, build("train/finite", constants, device=device)
    for size in (1, 2, 3, 4, 5, 7, 129):
        for places in [
            (),
            *((k,) for k in {0, 1, 2, 3, 4, size // 2, size - 2, size - 1} if 0 <= k < size),
            (0, size - 1),
        ]:
            values = np.float32([3.4e38, -3.4e38, 1e-42, 0.0] * 34)[: size + 1]
            values[size:] = np.nan  # what lies behind the array is nobody's business
            others = np.zeros_like(values)
            values[list(places)] = bad
            wanted = 3 << 40 | places[0] if places else none
            elements = -(-size // stride)
            ints, longs = (
                {"begin.0": 0, "begin.1": elements, "begin.2": 2 * elements},
                {"size.0": size, "size.1": size},
            )
            for order in ((values, others), (others, values)):
                arrays = {"values.0": order[0], "values.1": order[1]}
                arrays |= dict(iteration=np.int64([3]), first=np.int64([none, none]))
                got = launch(
                    program, "look_for_nonfinite", 2 * elements, ints, arrays, device, longs
                )
                assert got["first"].tolist() == [
                    wanted if array is values else none for array in order
                ]


def test_the_earliest_number_that_is_not_finite_is_kept():
    program = build("train/finite", (("ARRAYS", 1), ("STRIDE", 4)))
    values = np.float32([0, 0, 0, 0, 0, np.nan])
    for found_before, wanted in (
        (2 << 40 | 9, 2 << 40 | 9),
        (3 << 40 | 9, 3 << 40 | 5),
        (4 << 40, 3 << 40 | 5),
    ):
        arrays = dict(values=values, iteration=np.int64([3]), first=np.int64([found_before]))
        got = launch(
            program,
            "look_for_nonfinite",
            2,
            {"begin.0": 0, "begin.1": 2},
            arrays,
            longs={"size.0": 6},
        )
        assert got["first"][0] == wanted


# ---- extreme random words ------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("word", [0, 1])
def test_the_least_and_the_greatest_word_give_finite_numbers_within_bounds(word, device):
    """0 and 2**32 - 1 as the first word (the radius of Box and Muller, and a choice) and as the
    second (the angle).
    """
    for extreme, (env, episode, step, agent) in words_with_extremes(POLICY, word).items():
        clock = clocks(np.random.default_rng(0), 1)
        clock["episode"] = np.uint32((episode + 1) & 0xFFFFFFFF)
        clock["elapsed"] = np.array([step], np.uint32).view(np.int32)
        words = RandomStream(SEED, [env], [episode], [step], POLICY).bits(1, 0, agent)[0, 0]
        assert words[word] == extreme
        ids = dict(first_env=np.array(env, np.uint32).view(np.int32), first_agent=agent)
        one = np.full((1, 1), FAR, np.float32)
        for logits, impossible in (
            ([0.0] * 4, set()),
            ([-np.inf, 0.0, 1.0, -np.inf], {0, 3}),
            ([0.0, 3e38, 0.0, -3e38], {3}),
        ):
            outputs = dict(action=np.full((1, 1, 4), -1, np.int32), log_prob=one, entropy=one)
            parameters = np.tile(np.float32(logits), 4)[None]
            got = sample(
                categorical((4,) * 4, device), (1, 1), parameters, clock, outputs, device, **ids
            )
            action = got["action"][0, 0, word]
            assert 0 <= action < 4 and action not in impossible
            possible = [
                k for k in range(4) if logits[k] > -np.inf and logits[k] >= max(logits) - 100
            ]
            assert action == (possible[-1] if extreme else possible[0])
            assert np.isfinite(got["log_prob"]).all() and np.isfinite(got["entropy"]).all()
        drawn, program = int(below(words[1], 4)), epsilon_greedy(4, device)
        values, action = np.eye(4, dtype=np.float32)[[3 - drawn]], np.full((1, 1, 1), -1, np.int32)
        for epsilon, want in ((0.0, 3 - drawn), (1.0, drawn)):  # never and always explores
            outputs = dict(action=action, epsilon=np.float32([epsilon]))
            got = sample(program, (1, 1), values, clock, outputs, device, kind=EpsilonGreedy, **ids)
            assert got["action"] == want
        entries = np.full((1, 1, 5), FAR, np.float32)
        for squashed in (0, 1):
            outputs = dict(raw=entries, action=entries, log_prob=one)
            program, zeros = gaussian(BOX, squashed, device), np.zeros((1, 10), np.float32)
            got = sample(program, (1, 1), zeros, clock, outputs, device, kind=Gaussian, **ids)
            # sqrt(48 log 2): 2**-24
            assert np.isfinite(got["log_prob"]).all() and (np.abs(got["raw"]) < 5.78).all()
            if word == 0:
                radius = np.hypot(*got["raw"][0, 0, :2])
                assert abs(radius - (np.sqrt(48 * np.log(2)) if extreme else 0.0)) < 1e-5
            assert not squashed or ((got["action"] >= BOX.low) & (got["action"] <= BOX.high)).all()
        assert 0.0 <= unit(words[word]) < 1.0
