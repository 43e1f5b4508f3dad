"""Who looks at each gradient step: nobody while a run trains, which waits for no number; ``explain.py`` as it replays one."""

from contextlib import contextmanager
from contextvars import ContextVar

_looker = ContextVar("looker", default=None)


def looker():
    """Return what is called in each gradient step, before the weights change, or None.

    Its arguments are tensors: the loss (), a list of what the learner reports of it in the order of its ``reported``, the
    weights and their gradients, of which some of either may be views, and whether the step is skipped ().
    """
    return _looker.get()


@contextmanager
def looking(look):
    """Have ``look`` called, as ``looker`` says, in each gradient step that is taken in this context."""
    begun = _looker.set(look)
    try:
        yield
    finally:
        _looker.reset(begun)
