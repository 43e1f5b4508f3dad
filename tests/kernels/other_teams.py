"""Executors whose teams add up in other ways, and teams in another order: no bit depends on them.

No tests of its own.
"""

import ctypes

BOUNDS = ("-fsanitize=bounds", "-fno-sanitize-recover=bounds")
# A build that counts operations has no vectors: each member adds few numbers of several pieces at
# once, as on a GPU.
OTHER_TEAMS = {
    "one thread": dict(threads=1, flags=("-O1",)),
    "team of 2": dict(team_threads=2, flags=BOUNDS),
    "as on a GPU": dict(count=True, team_threads=8, flags=BOUNDS),
}


class Backwards:
    """A program whose teams run from the last to the first: those of one launch know nothing of
    each other.
    """

    def __init__(self, program):
        self.functions = program.functions

    def launch(self, kernel, call, count, work=0):
        """As of ``HostProgram``."""
        for e in reversed(range(count)):
            assert self.functions[kernel](ctypes.c_void_p(call.ctypes.data), e, e + 1) == 0
