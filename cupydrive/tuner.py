"""Launch configuration by measurement: the layout of threads for rollouts, the number of copies for training.

Both are found in seconds on the device at hand and kept in the cache folder, by device, kernel and size. Whatever is
chosen, results have the same bits. Letters: N environments.
"""

import hashlib
import json
import math
import statistics
import sys
import time
import warnings
from dataclasses import asdict, dataclass, replace

from cupydrive import envs
from cupydrive.arguments import checked_bool, checked_int
from cupydrive.batch import Batch, row_bytes
from cupydrive.errors import CupydriveWarning, MemoryLimitError, SpecError
from cupydrive.executors import choose, executor
from cupydrive.executors.cache import cache_folder
from cupydrive.files import write_atomically
from cupydrive.source import Layout, assemble

STEPS = 32  # of a launch by which layouts are compared
LAUNCHES = (1, 4, 16, 64, 256)  # numbers of steps that are tried under the fastest layout
ENOUGH = 0.95  # of the best rate: more steps than reach it only take memory
RUNS = 5
SECONDS = 0.01  # of one run, at least
SIZES = tuple(4**k for k in range(3, 11))  # 64 to 1,048,576: numbers of copies that are tried
ITERATIONS = 5  # of training that are timed
NO_GAIN = 1.02  # a number of copies that trains less than this much faster, twice in a row, ends the search
FORMAT = 3
MOST_BYTES = 100_000  # of a file: a hundred times what is kept


@dataclass(frozen=True)
class Tuned:
    """What ``tune`` found.

    Args:
        layout: The fastest ``Layout``.
        rates: env-steps per second of random rollouts by layout, in words, the default one first.
        launches: The same of the fastest layout, by the number of steps of a launch.
        cached: Whether this was known.
    """

    layout: Layout
    rates: dict[str, float]
    launches: dict[int, float]
    cached: bool = False

    @property
    def steps(self):
        """The fewest steps of a launch that reach nearly the best rate: what ``rollout(T)`` should at least ask for."""
        return min(t for t, rate in self.launches.items() if rate >= ENOUGH * max(self.launches.values()))

    def __str__(self):
        best = max(self.rates, key=self.rates.get)
        lines = [f"layouts{' (known)' * self.cached}:"]
        lines += [line(name, rate, name == best) for name, rate in self.rates.items()]
        lines += ["steps of a launch:"]
        lines += [line(f"{steps}", rate, steps == self.steps) for steps, rate in self.launches.items()]
        return "\n".join(lines)

    __repr__ = __str__


def line(name, rate, chosen):
    """Return a line of the table."""
    return f"  {name:<44}{rate / 1e6:12,.1f} M env-steps/s{'  <' * chosen}"


def in_words(layout):
    """Return a layout in words."""
    near = [name for name in ("state", "rows", "obs") if getattr(layout, f"{name}_near")]
    return f"team {layout.team}, {layout.envs_per_block} a block, near: {' '.join(near) or 'nothing'}"


def candidates(spec, params, num_envs, where):
    """Return layouts worth a try, the default one first; on the CPU there is no other."""
    first = where.layout(spec, params, num_envs)
    if where.name == "cpu":
        return [first]
    agents = sum(g.count for g in spec.groups(params))
    found = [Layout(1, block) for block in (4, 8, 16, 32, 64, 128, 256, 512, 1024)] if agents <= 8 else []
    largest = min(1024, 1 << (agents - 1).bit_length())
    for team in (2**k for k in range(1, 11) if max(2, largest // 8) <= 2**k <= largest):
        found += (
            [Layout(team, block // team) for block in (64, 128, 256) if block >= team]
            if team <= 32
            else [Layout(team), Layout(team, rows_near=False)]
        )
    fitted = [layout.fit(spec, params, where.near_bytes) for layout in found]
    return list(dict.fromkeys([first, *fitted]))


def tune(env, num_envs, *, device="auto", remember=True, **params):
    """Return the ``Tuned`` layouts of random rollouts of ``num_envs`` copies; ``make(..., layout="tuned")`` asks for it.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        num_envs: N; sizes within a factor of two share what was found.
        device: As for ``make``.
        remember: Use and keep what was found; otherwise measure anew and keep nothing.
        **params: Parameters of the environment.

    Raises:
        MemoryLimitError: If N copies do not fit.
    """
    spec, remember = envs.get(env), checked_bool("tune", "remember", remember)
    spec.require_known(params, tune)
    made, where = spec.make_params(**params), executor(choose(device)[0])
    num_envs = checked_int(spec.name, "num_envs", num_envs)
    each = row_bytes(spec, made, final_obs=False)
    if num_envs * each > where.free_bytes():
        raise MemoryLimitError(
            f"tune: num_envs = {num_envs:,} needs {num_envs * each:,} bytes for one step, more than are free"
        )
    tried = candidates(spec, made, num_envs, where)
    text = assemble(spec, made, tried[0]).text if spec.own_program is None else spec.name
    key = name_of("layout", where, text, num_envs.bit_length())
    kept = recall(key, lambda content: kept_layouts(content, tried)) if remember else None
    if kept is not None:
        return kept
    rates = {layout: rate(spec, made, num_envs, where, layout) for layout in tried}
    rates = {layout: value for layout, value in rates.items() if value is not None}
    best = max(rates, key=rates.get)
    launches = {steps: rate(spec, made, num_envs, where, best, steps) for steps in LAUNCHES}
    launches = {steps: value for steps, value in launches.items() if value is not None}
    found = Tuned(best, {in_words(layout): value for layout, value in rates.items()}, launches)
    if remember:
        keep(key, {"layout": asdict(best), "rates": found.rates, "launches": launches})
    return found


def rate(spec, params, num_envs, where, layout, steps=None):
    """Return env-steps per second under ``layout``, or None if it cannot be built or the rows of ``steps`` do not fit.

    By default a launch has as many steps as fit, at most ``STEPS``.
    """
    fit = where.free_bytes() // 4 // (row_bytes(spec, params, final_obs=False) * num_envs)
    if steps is not None and steps > max(1, fit):
        return None
    steps = steps or max(1, min(STEPS, fit))
    try:
        batch = Batch(spec, num_envs, params, where, layout=layout)
    except (SpecError, RuntimeError) as error:
        if isinstance(error, MemoryLimitError):
            raise
        return None
    batch.reset(0)

    def run(times):
        where.synchronise()
        begin = time.perf_counter()
        for _ in range(times):
            batch.rollout(steps, final_obs=False)
        where.synchronise()
        return (time.perf_counter() - begin) / times

    run(max(1, min(params.max_episode_steps // steps, 20)))  # until episodes end now and then
    times = max(1, int(SECONDS / run(1)))
    return num_envs * steps / statistics.median(run(times) for _ in range(RUNS))


# ---- number of copies ------------------------------------------------------------------------------------------------


def best_num_envs(env, *, device="auto", remember=True, progress=None, **params):
    """Return the number of copies that trains the most env-steps per second; ``make(num_envs="auto")`` asks for it.

    Powers of four are tried with what the environment suggests to train it, until memory ends or nothing is gained.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        device: As for ``make``.
        remember: As for ``tune``.
        progress: Called with a line for each number tried; None: ``print`` to the standard error.
        **params: Parameters of the environment.
    """
    spec = envs.get(env)
    made, where = spec.make_params(**params), executor(choose(device)[0])
    layout = where.layout(spec, made, SIZES[0])
    text = assemble(spec, made, layout).text if spec.own_program is None else spec.name
    key = name_of("num_envs", where, text, SIZES[-1])
    kept = recall(key, kept_number) if remember else None
    if kept is not None:
        return kept
    say = progress or (lambda line: print(f"cupydrive: {line}", file=sys.stderr, flush=True))
    rates, without_gain = {}, 0
    for n in SIZES:
        value = training_rate(spec, made, n, where.name)
        if value is None:
            say(f"{n:,} copies do not fit into memory")
            break
        say(f"{n:,} copies train {value / 1e6:,.2f} M env-steps/s")
        without_gain = 0 if value > NO_GAIN * max(rates.values(), default=0) else without_gain + 1
        rates[n] = value
        if without_gain == 2:
            break
    if not rates:
        raise MemoryLimitError(f"{spec.name}: not even {SIZES[0]} copies can be trained in the memory there is")
    best = max(rates, key=rates.get)
    if remember:
        keep(key, {"num_envs": best, "rates": rates})
    return best


def training_rate(spec, params, num_envs, device):
    """Return env-steps per second of whole training iterations, or None if memory is short."""
    import torch

    from cupydrive.interop import capture
    from cupydrive.loop import precision
    from cupydrive.torch_settings import memory_errors
    from cupydrive.training import make_run

    try:
        with memory_errors():
            run = make_run(spec, num_envs=num_envs, device=device, **asdict(params))
            with precision(run):
                iterate = run.iterate
                if device == "cuda":
                    saved = run.snapshot()
                    iterate = capture(run.iterate, lambda: run.restore(saved)).replay
                iterate()
                run.batch.executor.synchronise()
                begin = time.perf_counter()
                for _ in range(ITERATIONS):
                    iterate()
                run.batch.executor.synchronise()
                return ITERATIONS * run.steps_per_iteration / (time.perf_counter() - begin)
    except MemoryLimitError:
        return None
    finally:
        if device == "cuda":
            torch.cuda.empty_cache()


# ---- what was found --------------------------------------------------------------------------------------------------


def name_of(kind, where, text, size):
    """Return the name under which a result is kept: it changes with the device, the kernel and the size."""
    digest = hashlib.sha256("\0".join([where.describe(), text, str(size), str(FORMAT)]).encode()).hexdigest()[:32]
    return f"{kind}-{digest}.json"


def recall(name, read):
    """Return what is kept under ``name``, as ``read`` makes it of the content, or None.

    A file holds one JSON object: ``found``, what ``read`` knows, and ``sha256``, the digest of its text. One that is damaged
    or has other values is as none, with one line that says so: everything in it can be measured again.
    """
    path = cache_folder() / name
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        return ignored(path, error.strerror)
    if len(text) > MOST_BYTES:
        return ignored(path, f"it is larger than {MOST_BYTES} bytes")
    try:
        content = json.loads(text)
        require(isinstance(content, dict) and set(content) == {"found", "sha256"}, "it must hold found and sha256")
        require(
            content["sha256"] == digest_of(content["found"]), "its SHA-256 does not fit: it is damaged or was edited"
        )
        return read(content["found"])
    except RecursionError:
        return ignored(path, "it is nested too deeply")
    except ValueError as error:  # text that is no UTF-8, no JSON, or has other values than those that are kept
        return ignored(path, str(error))


def ignored(path, reason):
    """Warn that a file is as none; return None."""
    warnings.warn(f"{path} is ignored and measured anew: {reason}", CupydriveWarning, stacklevel=5)


def require(right, otherwise):
    """Raise ``ValueError`` unless ``right``."""
    if not right:
        raise ValueError(otherwise)


def digest_of(found):
    """Return the SHA-256 of an object of JSON."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def kept_layouts(found, tried):
    """Return the ``Tuned`` that ``found`` describes; its layout must be one that is tried here."""
    require(
        isinstance(found, dict) and set(found) == {"layout", "rates", "launches"},
        "it must hold layout, rates, launches",
    )
    layout = next((layout for layout in tried if asdict(layout) == found["layout"]), None)
    require(layout is not None, "its layout is none that is tried here")
    rates, launches = kept_rates(found["rates"]), kept_rates(found["launches"])
    require(set(launches) <= {str(steps) for steps in LAUNCHES}, f"the steps of its launches must be among {LAUNCHES}")
    return Tuned(layout, rates, {int(steps): value for steps, value in launches.items()}, cached=True)


def kept_number(found):
    """Return the number of copies that ``found`` describes."""
    require(isinstance(found, dict) and set(found) == {"num_envs", "rates"}, "it must hold num_envs and rates")
    rates = kept_rates(found["rates"])
    require(type(found["num_envs"]) is int, "num_envs must be an int")
    require(
        found["num_envs"] in SIZES and str(found["num_envs"]) in rates, f"num_envs must be among {SIZES} and its rates"
    )
    return found["num_envs"]


def kept_rates(rates):
    """Return ``rates`` if they are what rates are: at least one, by name, finite and above 0."""
    require(isinstance(rates, dict) and rates, "it must have rates")
    for name, value in rates.items():
        fine = type(value) in (int, float) and 0 < value < math.inf
        require(fine, f"the rate of {name!r} is {value!r}; it must be finite and above 0")
    return rates


def keep(name, found):
    """Keep ``found`` under ``name``."""
    found = json.loads(json.dumps(found))  # keys as they are read again
    write_atomically(cache_folder() / name, json.dumps({"found": found, "sha256": digest_of(found)}).encode())


def tuned_layout(spec, params, num_envs, device, obs_dtype):
    """Return the layout of ``tune`` for these parameters."""
    return replace(tune(spec, num_envs, device=device, **asdict(params)).layout, half_obs=obs_dtype == "bfloat16")
