"""Which failed comparison of a check is the cause of the others, and what it means in words.

A kernel that is wrong in one place differs in many: a wrong position makes wrong observations, rewards and returns. What
has failed is put in the order in which values are made, and the first of it is the cause. A team of one is compared with
the reference before teams are compared with it: what is wrong there has nothing to do with teams.
"""

# Parts of a check: what is compared with what. The device's name stands before them.
BOUNDS = "a bounds-checked build against the fast one, bit for bit"
TEAM_RULES = "equally many team.sync() for every member, one writer of an entry between two"
THREADS = "1 thread against 3, bit for bit"
TEAMS = "a team of threads against one, bit for bit"
GPU_TEAMS = "team sizes 1, 4, 32, 128 against the default, bit for bit"
RESETS = "resets and random streams"
WRITTEN = "masks, written twice"
REFERENCE = "against the NumPy reference, one step"
STATISTICS = "autoreset, time limit, statistics"
PATHS = "fused rollout against single steps, bit for bit"
EPISODES = "episodes of a rollout against sums in NumPy"
DEVICES = "cpu against cuda"

EVERY_MEMBER = "every member of a team runs step, reset and observe: "
GUARD = EVERY_MEMBER + (
    "what belongs to no agent is for one of them, `if (env.team.leader())`, and env.team.sync() stands before others read it"
)
SHARE = EVERY_MEMBER + (
    "loops over agents are `for (int i : env.team.each(n))`, env.team.sync() stands before reading what another member wrote, "
    "and what several add to takes env.team.add"
)
RETURN = EVERY_MEMBER + (
    "an episode ends if any of them returns true; what all agents decide together takes env.team.sum, min or any first, and "
    "env.team.sync() stands before reading what another member wrote"
)
UNEVEN = (
    "all members must reach each of them: none stands in a branch that depends on an agent, nor in a loop over "
    "env.team.each(n), of which members have different shares (those of env.team.all(n) are equally long)"
)
RACE = (
    "what belongs to no agent is for one member, `if (env.team.leader())`; an agent's entries are for the member whose agent "
    "it is, in loops `for (int i : env.team.each(n))`; what several add to takes env.team.add (docs/dialect.md, 'Whose an "
    "entry is')"
)
# What makes a value that is no number where the reference has one.
NOT_FINITE = {
    "NaN": "a square root or logarithm of a negative number, 0 / 0, or a value that was never written",
    "inf": "a division by 0, or more than float32 holds",
}
# What a difference means: the comparison, how names begin, words. Causes stand before what follows from them.
FAULTS = (
    (BOUNDS, ("bounds",), "the kernel reaches for what is not there"),
    (TEAM_RULES, ("syncs",), UNEVEN),
    (TEAM_RULES, ("races",), RACE),
)
OF_REFERENCE = (
    (
        WRITTEN,
        ("",),
        "observe does not write this mask, and each must be written (env.GROUP.allow_all(env.team) allows all)",
    ),
    (RESETS, ("unmasked",), "a reset by mask changes environments that it leaves out"),
    (RESETS, ("state.",), "reset gives another state than the reference"),
    (REFERENCE, ("state.",), "step gives another state than the reference"),
    (REFERENCE, ("left.", "active."), "step lets other agents leave than the reference"),
    (REFERENCE, ("terminated",), "step ends the episode where the reference does not, or the other way round"),
    (REFERENCE, ("reward.",), "step gives other rewards than the reference"),
    (REFERENCE, ("truncated",), "the time limit ends other episodes than in the reference"),
    (STATISTICS, ("metric.", "episode metric."), "step counts otherwise in env.log than the reference"),
    (REFERENCE, ("obs.", "mask."), "observe gives something else than the reference for the same state"),
    (RESETS, ("obs.", "mask."), "observe gives something else than the reference after a reset"),
    (REFERENCE, ("final_obs.",), "observe gives something else than the reference in the last step of an episode"),
    (EPISODES, ("",), "what is kept of an episode is not what its steps gave"),
    (STATISTICS, ("",), "what is kept of an episode is not what its steps gave"),
    (RESETS, ("",), "resets and random streams are not what they should be"),
)
OF_KERNEL = (
    (THREADS, ("",), "a second run from the same seed gives other numbers: something is read before it was written"),
    (BOUNDS, ("",), "a second run from the same seed gives other numbers: something is read before it was written"),
    (TEAMS, ("state.", "log."), GUARD),
    (TEAMS, ("terminated", "truncated"), RETURN),
    (TEAMS, ("",), GUARD),
    (GPU_TEAMS, ("",), GUARD),
    (PATHS, ("",), "many steps in one launch give other numbers than launches of one: only State outlives a step"),
)
BETWEEN_DEVICES = (
    (DEVICES, ("",), "CPU and GPU give other numbers: use the mathematics of math::, and sums in one order"),
)
# A GPU's teams are of several threads, so there teams may be why the reference's numbers are missed.
CAUSES = FAULTS + OF_REFERENCE + OF_KERNEL
CAUSES_ON_GPU = FAULTS + OF_KERNEL + OF_REFERENCE + BETWEEN_DEVICES
# Of differences in one comparison, those that stand first here came first.
DERIVED = ("state.", "log.", "left.", "active.", "terminated", "truncated", "reward.", "obs.", "")


def _find(part, name):
    """Return a key for sorting, and what a difference of ``name`` in ``part`` means, or None."""
    on_gpu = part.startswith("cuda") or DEVICES in part
    for place, (what, begins, words) in enumerate(CAUSES_ON_GPU if on_gpu else CAUSES):
        if what in part and name.startswith(begins):
            return (on_gpu, place), words
    return (True, len(CAUSES_ON_GPU)), None


def rank(part, name, not_finite=False):
    """Return a key that puts failures into the order in which one makes another.

    ``not_finite`` says that the kernel's value is no number where the reference has one: decisions
    that it takes part in go wrong for that, and only a kernel that reaches outside of an array explains more.
    """
    on_gpu, place = _find(part, name)[0]
    return (
        on_gpu,
        place >= len(FAULTS),
        not not_finite,
        place,
        next(k for k, begin in enumerate(DERIVED) if name.startswith(begin)),
    )


def is_fault(part, name):
    """Return whether ``name`` in ``part`` is what no kernel may do, and no comparison: its place says more than a meaning."""
    return any(what in part and name.startswith(begins) for what, begins, _ in FAULTS)


def meaning(part, name, of_agents=False, not_finite="", who="the kernel gives"):
    """Return in words what it means that ``name`` differs in ``part``, or an empty string where nothing is known of it.

    Args:
        part: What was compared with what.
        name: The field.
        of_agents: Whether it has a value for each agent.
        not_finite: ``"NaN"`` or ``"inf"``, where a value is that; else an empty string.
        who: Whose value, in words.
    """
    if not_finite:
        return f"{who} {not_finite} in {name} ({NOT_FINITE[not_finite]})"
    _, words = _find(part, name)
    return "" if words is None else SHARE if words is GUARD and of_agents else words
