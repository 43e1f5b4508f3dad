"""What a sweep tries: the values of settings and parameters that are drawn, and whether they can fit at all."""

from dataclasses import fields
from itertools import islice, product

from cupydrive.errors import CupydriveError, ParameterError, did_you_mean
from cupydrive.inputs.arguments import checked_float, checked_mapping, checked_str, shown
from cupydrive.training.algorithms.pool import unpooled
from cupydrive.training.population import setting_names

# What is tried by default, of the settings that an algorithm has: (low, high), (low, high, "log"), or a list of choices.
SPACE = {
    "learning_rate": (1e-4, 2e-2, "log"),
    "ent_coef": (1e-4, 0.1, "log"),
    "gamma": [0.9, 0.95, 0.98, 0.99, 0.995, 0.999],
    "gae_lambda": [0.8, 0.9, 0.95, 0.98, 1.0],
    "num_steps": [8, 16, 32, 64, 128],
    "num_minibatches": [1, 2, 4, 8],
    "update_epochs": (1, 10),
    "batch_size": [128, 256, 512],
}
EACH = 256  # values of a range of ints that are all looked at; of a wider one, and of one of floats, its ends
MOST_LOOKED_AT = 2000  # combinations with one value: who finds none in so many would hardly draw one


def distributions(spec, settings, space):
    """Return Optuna's distributions by name.

    Raises:
        ParameterError: If a name is none of a setting or a float parameter, or a range is no range.
    """
    known = setting_names(settings)
    floats = {field.name for field in fields(spec.params) if isinstance(field.default, float)}
    if space is None:
        space = {name: each for name, each in SPACE.items() if name in known}
    checked_mapping("sweep", "space", space)
    if not space:
        raise ParameterError("sweep: space is empty; name what is to be tried")
    found = {}
    for name, each in space.items():
        checked_str("sweep", "a name in space", name)
        if name not in known | floats:
            names = sorted(known | floats)
            raise ParameterError(f"sweep: space has {name!r}.{did_you_mean(name, names)} There are: {', '.join(names)}")
        found[name] = distribution(name, each)
    return found


def distribution(name, each):
    """Return Optuna's distribution of a range or of choices."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(each, list) and each and all(isinstance(x, bool | int | float | str) for x in each):
        return CategoricalDistribution(each)
    if isinstance(each, tuple) and len(each) in (2, 3) and each[2:] in ((), ("log",)):
        low, high = (checked_float("sweep", f"space[{name!r}]", x) for x in each[:2])
        whole = all(type(x) is int for x in each[:2])
        if low < high and (low > 0 or len(each) == 2):
            kind = IntDistribution if whole else FloatDistribution
            return kind(*((int(low), int(high)) if whole else (low, high)), log=len(each) == 3)
    raise ParameterError(
        f"sweep: space[{name!r}] = {shown(each)}; it must be (low, high), (low, high, 'log') with 0 < low, or a list of "
        "choices"
    )


def looked_at(each):
    """Return those values of one of Optuna's distributions that are looked at: all choices, a short range of ints, or ends."""
    if hasattr(each, "choices"):
        return list(each.choices)
    whole = isinstance(each.low, int) and each.high - each.low < EACH
    return list(range(each.low, each.high + 1)) if whole else [each.low, each.high]


def check_space(drawn, settings, plan):
    """Return the ``Plan`` of values that fit, if each value that may be drawn fits with some of the others.

    Which values fit only with some is for whoever draws them to see. Settings that a schedule may change, and parameters, are
    not combined: what fits does not depend on them.

    Args:
        drawn: Optuna's distributions by name.
        settings: The algorithm's, before trials change them.
        plan: Called with values by name, returns the ``Plan`` of that trial, or raises ``CupydriveError``.

    Raises:
        ParameterError: If a value fits with none, of as many combinations as are looked at.
    """
    values = {name: looked_at(each) for name, each in drawn.items()}
    about = {f.name: f.metadata for each in (settings, unpooled(settings)) for f in fields(each)}
    shapes = [name for name in values if name in about and not about[name].get("schedule")]
    start = {name: each[0] for name, each in values.items()}

    def combined(fixed):
        """Return values with which the ``fixed`` ones fit, or None, and by its text each error that others give."""
        free, errors = [name for name in shapes if name not in fixed], {}
        for some in islice(product(*(values[name] for name in free)), MOST_LOOKED_AT):
            tried = start | dict(zip(free, some, strict=True)) | fixed
            error = misfit(plan, tried)
            if error is None:
                return tried, errors
            errors.setdefault(str(error), error)
        return None, errors

    found, errors = combined({})
    if found is None:
        first, *others = errors.values()
        if not others:
            require_each(values, plan)
            raise first.with_traceback(None)  # it is not what is drawn
        raise ParameterError(f"sweep: no values of {', '.join(shapes)} in space fit together: {first}")
    start = found
    for name, value in ((name, value) for name, each in values.items() for value in each):
        error = misfit(plan, start | {name: value})
        if error is not None and combined({name: value})[0] is None:
            raise ParameterError(f"sweep: space[{name!r}] holds {shown(value)}: {error}")
    return plan(start)


def require_each(values, plan):
    """Raise ``ParameterError`` for the first value in space that does not fit even if nothing else is drawn."""
    if misfit(plan, {}) is None:
        for name, value in ((name, value) for name, each in values.items() for value in each):
            if (error := misfit(plan, {name: value})) is not None:
                raise ParameterError(f"sweep: space[{name!r}] holds {shown(value)}: {error}")


def misfit(plan, values):
    """Return the ``CupydriveError`` that says why values do not fit together, or None if they do; as of ``check_space``."""
    try:
        plan(values)
    except CupydriveError as error:
        return error
    return None
