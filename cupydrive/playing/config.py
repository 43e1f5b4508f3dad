"""EvalConfig: complete and validated configuration of the episodes to play."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from annotated_types import Ge, Le

from cupydrive import envs
from cupydrive.errors import DeviceError, ParameterError
from cupydrive.executors import checked_device, choose
from cupydrive.inputs.arguments import checked_choice, checked_mapping, shown
from cupydrive.inputs.validation import Count, validated
from cupydrive.playing.players import HeuristicPolicy, RandomPolicy
from cupydrive.protocols import EnvParams, PlayerSettings, Policies, PolicySettings
from cupydrive.spec import EnvSpec, Group

if TYPE_CHECKING:
    from cupydrive.simulation.vector import VectorEnv

EpisodeSeed = Annotated[int, Ge(0), Le(2**63 - 1)]
OF_ALL_GROUPS: dict[str, type] = {"random": RandomPolicy, "heuristic": HeuristicPolicy}


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """Configuration of the episodes to play, as returned by ``resolve_eval``.

    Args:
        spec: ``EnvSpec`` of the environment.
        params: Parameters of the environment, as ``spec.make_params`` returns them.
        policies: Settings of each group's policy, by group.
        device: ``"cuda"`` or ``"cpu"``.
        episodes: Number of episodes, one from each initial state.
        seed: Random seed of initial states and actions.
        greedy: Whether a run's policies take the most likely action.
    """

    spec: EnvSpec
    params: EnvParams
    policies: dict[str, PlayerSettings]
    device: Literal["cuda", "cpu"]
    episodes: Count = 1000
    seed: EpisodeSeed = 10_000
    greedy: bool = True


Playable: TypeAlias = "str | PathLike[str] | EnvSpec | VectorEnv | Policies"
ConfigType = TypeVar("ConfigType", bound=EvalConfig)
PoliciesByGroup = str | Mapping[str, PlayerSettings] | None


def resolve_eval(
    call: Callable[..., Any],
    env: "Playable",
    policies: PoliciesByGroup = None,
    params: Mapping[str, Any] | None = None,
    *,
    device: str = "auto",
    kind: type[ConfigType] = EvalConfig,  # type: ignore[assignment]
    random: bool = True,
    **options: Any,
) -> ConfigType:
    """Return the configuration of the episodes that a function plays.

    Args:
        call: The function.
        env: Name of an environment, path of its Python file, ``EnvSpec``, ``Run``, or
            ``VectorEnv``, from which a new one with equal parameters is made.
        policies: ``"random"``, ``"heuristic"``, or settings by group. Groups joined by ``+`` share
            settings. Other groups use the policies of the run, or the heuristic.
        params: Parameters of the environment. A run has its own.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``. A run has its own.
        kind: Class of the configuration.
        random: Use a random policy for groups without any policy. Otherwise they are an error.
        **options: Other fields of ``kind``.

    Raises:
        ParameterError: If an argument is wrong, or a group has no policy.
        DeviceError: If the device cannot be used, or a run is on another one.
    """
    where, given = call.__name__, dict(params or {})
    device = checked_device(device, where)
    fields: dict[str, Any] = validated(where, kind, options)
    run = env if isinstance(env, Policies) else None
    if run is not None:
        spec, made = run.spec, run.params
        spec.require_known(given, call)
        if given:
            raise ParameterError(
                f"{where}: a run has its own parameters. Leave out {', '.join(given)}"
            )
        if device not in ("auto", run.device):
            raise DeviceError(
                f"{where}: device = {device!r}, but the run is on {run.device!r}. Leave device "
                f"out, or load the run's folder on the other device: cupydrive.load(folder, "
                f"device={device!r})"
            )
        chosen = run.device
    else:
        like: Any = env
        if hasattr(like, "batch"):  # a VectorEnv
            like, device, given = like.spec, like.device, {**asdict(like.params), **given}
        spec = envs.get(like)
        spec.require_known(given, call)
        made, chosen = spec.make_params(**given), choose(device)[0]
    groups = spec.groups(made)
    settings = policies_by_group(where, groups, policies)
    for name in [g.name for g in groups if g.name not in settings]:
        if run is not None:
            settings[name] = run.frozen(name, fields.get("greedy", True))
        elif spec.heuristic is not None or random:
            settings[name] = RandomPolicy() if spec.heuristic is None else HeuristicPolicy()
        else:
            raise ParameterError(
                f"{where}: {spec.name} has no heuristic, and {name!r} has no policy. Pass "
                "policies='random' (--policies random), settings by group, or a run instead of an "
                "environment"
            )
    return kind(
        spec=spec,
        params=made,
        policies={g.name: settings[g.name] for g in groups},
        device=chosen,
        **fields,
    )


def policies_by_group(
    where: str, groups: tuple[Group, ...], policies: PoliciesByGroup
) -> dict[str, PlayerSettings]:
    """Convert the argument ``policies`` of a function to settings by group.

    Raises:
        ParameterError: If a name is unknown, or settings are of the wrong kind.
    """
    names = [g.name for g in groups]
    if isinstance(policies, str):
        made: PlayerSettings = OF_ALL_GROUPS[
            checked_choice(where, "policies", policies, OF_ALL_GROUPS)
        ]()
        return dict.fromkeys(names, made)
    found: dict[str, PlayerSettings] = {}
    for key, settings in checked_policies(where, {} if policies is None else policies).items():
        for name in key.split("+"):
            checked_choice(where, "a group in policies", name, names)
            if name in found:
                raise ParameterError(
                    f"{where}: policies names the group {name!r} twice. Give each group one policy"
                )
            found[name] = settings
    return found


def checked_policies(where: str, policies: object, learning: bool = False) -> dict[str, Any]:
    """Validate the argument ``policies`` of a function, a dictionary of settings by name.

    Args:
        where: Name of the function, for messages.
        policies: The argument.
        learning: Whether policies may learn.

    Raises:
        ParameterError: If it is not a dictionary of settings.
    """
    kind = PolicySettings if learning else PlayerSettings
    listed = "cd.PPO(...), cd.A2C(...), cd.PQN(...), cd.OpponentPool(...), " * learning
    found = checked_mapping(where, "policies", policies)
    for name, settings in found.items():
        if isinstance(settings, type) or not isinstance(settings, kind):
            raise ParameterError(
                f"{where}: policies[{name!r}] = {shown(settings)}, expected "
                f"{listed}cd.HeuristicPolicy(), cd.RandomPolicy(), cd.FrozenPolicy(FOLDER) or "
                f"run.frozen(GROUP)"
            )
    return found
