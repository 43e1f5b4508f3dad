"""What binds a kernel, and what to try: rules, each with what was measured that supports it."""

from collections.abc import Callable
from dataclasses import dataclass

# Shares from which something is said to bind. Kernels that do nothing but write their rows reach 0.6 to 0.9 of the limit.
LATENCY, LAUNCHES, WRITES, ARITHMETIC, OBSERVING, RESETS = 0.75, 0.25, 0.6, 0.5, 0.5, 0.3
FEW_THREADS = 0.25  # of a processor's threads
MANY_AGENTS = 8
SENTENCES = 3
CARTPOLE = "| `cartpole` | 1 | {} |"  # a row of gallery/SPEED.md

BINDS = {
    "latency": "latency: the copies do not fill the device, and each waits for its own instructions",
    "launches": "launches: beginning and ending one, with state read and written, takes as long as its steps",
    "writes": "writes: what a step returns leaves nearly as fast as this device can write",
    "arithmetic": "arithmetic: float operations are made nearly as fast as this device can",
    "observations": "observations: to make them takes most of a step",
    "resets": "resets: where one copy begins anew, the copies beside it wait",
    "instructions": "instructions that are no float operations, branches, and waiting: neither writes nor arithmetic are near "
    "their limit",
}


def binding(p):
    """Return what binds a ``Profile``, as far as it can be told from times alone: a key of ``BINDS``."""
    if p.half_share >= LATENCY:
        return "latency"
    if p.launch_share >= LAUNCHES:
        return "launches"
    if p.write_share >= WRITES:
        return "writes"
    if (p.arithmetic_share or 0.0) >= ARITHMETIC:
        return "arithmetic"
    if p.observe_share >= OBSERVING and p.observe_share >= p.reset_share:
        return "observations"
    if p.reset_share >= RESETS:
        return "resets"
    return "instructions"


@dataclass(frozen=True)
class Rule:
    """Something to try.

    Args:
        applies: Whether it does, called with a ``Profile``.
        words: The sentence, in which ``{p.NAME}`` is what the profile says.
        evidence: What kernels/NOTES.md or gallery/SPEED.md says that supports it, word for word: the notes for what a change
            brought when it was made, the tables for how fast kernels are now. Empty: it follows from what was measured here.
    """

    applies: Callable
    words: str
    evidence: tuple[str, ...] = ()


RULES = (
    Rule(
        lambda p: p.binds == "latency",
        """More copies: half of them take {p.half_share:.0%} of the time, so that more of them cost little; CartPole makes
        48 G env-steps/s with 10,000 copies on an H200 and 110 G with 1,048,576.""",
        (CARTPOLE.format("10,000 | 128 | one launch | 47.9 G"), CARTPOLE.format("1,048,576 | 32 | one launch | 110 G")),
    ),
    Rule(
        lambda p: p.launch_share >= LAUNCHES,
        """More steps a launch: beginning and ending one takes {p.launch_share:.0%} of it, however many steps it has; RICE-N
        makes 13.7 M env-steps/s in launches of 4 steps and 24.2 M in launches of 20.""",
        ("RICE-N makes 13.7 M env-steps/s\nin launches of 4 steps, 24.2 M in launches of 20",),
    ),
    Rule(
        lambda p: p.binds == "writes" and not p.half_obs and p.observed_bytes >= p.bytes_per_step / 3,
        """Fewer bytes: {p.observed_bytes:,} of {p.bytes_per_step:,} are observations, which obs_dtype="bfloat16" halves;
        writes alone then allow {p.halved_gain:.2g} times as many steps.""",
    ),
    Rule(
        lambda p: p.binds == "writes",
        """Leave the arithmetic as it is: CartPole's rollout of 1,048,576 copies lost a quarter of its instructions and was
        no faster, as it waited for memory alone.""",
        ("a quarter of the instructions less, and no faster: memory alone",),
    ),
    Rule(
        lambda p: p.use is not None and p.use.local_bytes > 0,
        """Keep arrays in registers: {p.use.local_bytes:,} bytes of each thread lie in local memory, because the compiler
        does not know an index or had no register left; Array<T, N> selects instead, and took continuous Tag of five agents
        from 1.9 to 3.3 G env-steps/s.""",
        ("no local memory; 4,280 instructions",),
    ),
    Rule(
        lambda p: p.half_share < LATENCY and p.observe_share >= OBSERVING and p.agents > 1,
        """Make observations cheaper: alone they take {p.observe_share:.0%} of a step; what is read for each pair of agents
        belongs in aligned rows of struct Shared, which took continuous Tag from 28 instructions a pair to 4.7.""",
        ("28 instructions a candidate became 4.7",),
    ),
    Rule(
        lambda p: p.half_share < LATENCY and p.reset_share >= RESETS,
        """A cheaper reset, or longer episodes: up to {p.reset_share:.0%} of the time goes there, as a warp waits for each
        copy that begins anew; with starts drawn ahead by all lanes CartPole's instructions fell by 15 %.""",
        ("instructions fell by 15 %",),
    ),
    Rule(
        lambda p: p.binds == "arithmetic",
        """Fewer operations: a math::Divisor for each number that stays took 105 agents of continuous Tag from 52 to 56 M
        env-steps/s.""",
        ("division by a number kept with its inverse | 105 | | 56 M",),
    ),
    Rule(
        lambda p: p.use is not None and p.agents > MANY_AGENTS,
        """Let layout="tuned" time teams and ways to store: of 3,000 agents teams of 512 are faster in continuous Tag, 1.00
        instead of 0.80 M env-steps/s, and slower in grid Tag, 7.1 instead of 9.0 M.""",
        ("instead of 0.80 M), and slower in grid Tag (7.1 instead of 9.0 M)",),
    ),
    Rule(
        lambda p: p.use is not None and p.use.occupancy < FEW_THREADS and p.use.bound == "shared memory",
        """Less shared memory: {p.use.shared_bytes:,} bytes a block leave a processor {p.use.occupancy:.0%} of its threads;
        six blocks instead of five took 105 agents of continuous Tag from 48 to 51 M env-steps/s.""",
        ("actions and rewards not near: six blocks on a processor instead of five",),
    ),
    Rule(
        lambda p: p.use is not None and p.use.occupancy < FEW_THREADS and p.use.bound == "registers",
        """Fewer numbers alive at once: {p.use.registers} registers leave a processor {p.use.occupancy:.0%} of its threads;
        launch bounds that force fewer made CartPole slower, 103.7, 97 and 89.5 G with 48, 40 and 32.""",
        ("103.7, 97, 89.5 G | 48, 40, 32 registers",),
    ),
    Rule(
        lambda p: p.binds == "instructions",
        """Selections instead of branches: lanes of a warp, or of a vector, wait for each other where they go different
        ways; an insertion without branches, by distance and id in one word, takes 22 operations instead of 60.""",
        ("distance and id in one word: 22 operations an insertion instead of 60",),
    ),
    Rule(
        lambda p: p.device == "cuda",
        """Look at the lines: ncu --section SourceCounters --page source --csv says what each one of the machine code waits
        for; most of what made these kernels fast came from there.""",
        ("most of the second half of each table came from there",),
    ),
    Rule(
        lambda p: p.half_share < LATENCY and p.launch_share < LAUNCHES / 2,
        """Leave the sizes as they are: half of the copies take {p.half_share:.0%} of the time, and beginning and ending a
        launch {p.launch_share:.0%}, so that more copies or longer launches bring nothing.""",
    ),
    Rule(
        lambda p: p.device == "cpu",
        """Take it to a GPU, where the same kernel gives the same bits: one H200 makes 110 G env-steps/s of CartPole.""",
        (CARTPOLE.format("1,048,576 | 32 | one launch | 110 G"),),
    ),
    Rule(
        lambda p: True,
        """Draw random numbers four at a time: one uniform4 where two calls took two numbers of theirs.""",
    ),
    Rule(
        lambda p: True,
        """Keep State small: a launch reads and writes it once for each copy, 5 kB in RICE-N.""",
        ("each launch reads and writes 5 kB of state a copy",),
    ),
)


def advice(p):
    """Return three sentences on what to try with a ``Profile``, the most promising first."""
    return [" ".join(rule.words.format(p=p).split()) for rule in RULES if rule.applies(p)][:SENTENCES]
