"""What of each case concerns the environments that a person has named."""

from cupydrive import envs
from cupydrive.bench import scaling, training
from cupydrive.bench.startup import STARTED, TRAINED


class Chosen:
    """The environments of ``work``, and what of the other cases is theirs.

    Args:
        work: ``Work``s, or None: all environments that are listed anyway.
        device: ``"cuda"`` or ``"cpu"``.
        several: Training is timed in several processes.
    """

    def __init__(self, work, device, several=False):
        self.work, self.device, self.several = work, device, several
        given = [] if work is None else [one.env for one in work]
        self.names = None if work is None else {envs.get(env).name: env for env in given}  # as given: a path, maybe

    def concerns(self, env):
        """Return whether ``env``, a name, is one of them."""
        return self.names is None or env in self.names

    def lessons(self):
        """Return the ``Lesson``s of training."""
        return [lesson for lesson in training.LESSONS[self.device] if self.concerns(lesson.env)]

    def scaled(self):
        """Return the places of the ``Lesson``s that are trained by several processes."""
        return [k for k, lesson in enumerate(scaling.LESSONS[self.device]) if self.concerns(lesson.env)]

    def started(self):
        """Return (environment, parameters) of the starts: those that are listed, and with defaults those that are not."""
        listed = [(env, params) for env, params in STARTED if self.concerns(env)]
        known = dict(listed)
        return listed + [(given, {}) for env, given in (self.names or {}).items() if env not in known]

    def trained(self):
        """Return (environment, learner, mark) of the starts of training."""
        return [one for one in TRAINED if self.concerns(one[0])]

    def left_out(self, cases):
        """Return those of ``cases`` that time nothing of these environments, each with a line that says so."""
        if self.names is None:
            return {}
        found, named = {}, ", ".join(self.names)
        if "sampling" in cases:
            found["sampling"] = f"sampling draws from logits without an environment: it times nothing of {named}"
        if "training" in cases and not (self.scaled() if self.several else self.lessons()):
            table = scaling.LESSONS if self.several else training.LESSONS
            known = ", ".join(dict.fromkeys(lesson.env for lesson in table[self.device]))
            found["training"] = f"training times no lesson of {named} on this device; it has some of: {known}"
        return found
