"""Run: an environment, the policies that learn in it, and all state of their training.

A run folder (``runfolder.py``) stores a ``Run`` on disk. Modules that draw are imported where they
are used, so that training needs neither Matplotlib nor a video codec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from cupydrive import envs
from cupydrive.algorithms.kernels.play import ALL_ROLLOUTS, begin_play, decide_play
from cupydrive.errors import ParameterError, TrainingError
from cupydrive.executors import choose, executor
from cupydrive.executors.ahead import build_ahead
from cupydrive.executors.modes import ordinary_modes
from cupydrive.executors.ranks import Shard, current_ranks
from cupydrive.inputs.arguments import (
    checked_bool,
    checked_choice,
    checked_instance,
    checked_int,
    checked_path,
)
from cupydrive.inputs.files import file_errors, write_atomically
from cupydrive.inputs.names import NotCopied
from cupydrive.playing import inference
from cupydrive.playing.config import checked_policies
from cupydrive.playing.evaluation import evaluate
from cupydrive.playing.inference import Module, RowsByGroup
from cupydrive.playing.players import Trained
from cupydrive.playing.rollout import NONE_FOUND, LatestEpisodes, Rollout, episodes_unit
from cupydrive.playing.torch_settings import drawing_from, threads_worth, weights
from cupydrive.protocols import LearnerSettings, PlayerSettings
from cupydrive.simulation.batch import CLOCK, Batch
from cupydrive.training import runfolder
from cupydrive.training.config import TrainConfig, read_train_config
from cupydrive.training.frozen import check_kept
from cupydrive.training.policies import make_players
from cupydrive.training.ranks import of_all_ranks, part, shared_out

if TYPE_CHECKING:
    from cupydrive.drawing.curves import Curves
    from cupydrive.playing.evaluation import Evaluation
    from cupydrive.protocols import PolicySettings
    from cupydrive.rendering.video import Video
    from cupydrive.spec import EnvSpec
    from cupydrive.training.explain import Explanation, Failure


WARM_STEPS = 128  # length of a rollout if no policy learns
# State of a batch, besides the returns of groups.
BATCH_STATE = ("seed", "state", "clock", "metrics")


class Run(NotCopied):
    """Policies that learn in N environments. ``cupydrive.train`` and ``cupydrive.load`` return it.

    If several processes train one run together (``torch.distributed``), each process has its own
    ``Run`` with equal weights and a shard of the environments.

    Args:
        config: Configuration of the run.
        share: Number of runs that will share the device. Launch sizes are chosen accordingly.

    Attributes:
        shard: ``Shard`` of this process: the environments that it simulates.
        step: Environment steps done.
        backends: For each learning policy, one line about the chosen backend and the reason. The
            entry ``all rollouts`` reports whether a rollout is a single launch, and the reason.
        seconds: Training time of this process in seconds, without set-up and graph capture.
        interrupted: Whether Ctrl-C or the callback ended the last training.
        metrics: One dictionary per logged interval.
        policies: Torch modules of the learning policies, by name.
        failed: ``Failure`` if the last training met a non-finite number that is not explained yet.

    Examples:
        >>> import cupydrive as cd
        >>> run = cd.train("cartpole", num_envs=64, steps=50_000, progress=False)
        >>> result = run.evaluate(episodes=100)
        >>> run.save("runs/cartpole")
    """

    def __init__(self, config: TrainConfig, share: int = 1) -> None:
        config = checked_instance("Run", "config", config, TrainConfig, "a TrainConfig")
        self.config = config.made_of()
        self.spec, self.params, self.settings = config.spec, config.params, config.policies
        self.num_envs, self.seed = config.num_envs, config.seed
        self.device, self.backend = config.device, config.backend
        self.step, self.seconds = 0, 0.0
        self.metrics: list[dict[str, float]] = []
        self.folder: Path | None = None
        self.share = share
        self.total, self.interrupted = config.steps, False
        self.origin = envs.origin(self.spec)  # hashes of the files that are compiled now
        self.lock = runfolder.FolderLock()
        self.failed: Failure | None = None
        self.explanation: Explanation | None = None
        self.shard = Shard(self.num_envs, current_ranks())
        where = executor(self.device, share=share)
        # Seeds the random numbers that a custom learner draws.
        with drawing_from(torch.Generator().manual_seed(self.seed)):
            self.learners, self.backends, players = make_players(self.config, where)
            self.batch = Batch(
                self.spec, self.shard.num_envs, self.params, where, self.shard.envs.start
            )
            self.batch.reset(self.seed)
            learning = (
                kept for kept in self.settings.values() if isinstance(kept, LearnerSettings)
            )
            steps = next((kept.num_steps for kept in learning), WARM_STEPS)
            build_ahead([(where, episodes_unit(self.batch))])
            begin_play(self.batch, players)
            self.rollout = Rollout(self.batch, players, steps, shard=self.shard)
            for learner in self.learners.values():
                learner.prepare(self.rollout)
            self.backends[ALL_ROLLOUTS] = decide_play(self.rollout)
            self.episodes = LatestEpisodes(self.rollout)
        self.steps_per_iteration = self.num_envs * self.rollout.steps

    @property
    def policies(self) -> dict[str, nn.Module]:
        """Torch modules of the learning policies, by name.

        These are only the networks: they take normalized observations if ``normalize_obs`` is set,
        and return the parameters of a distribution and a value. Use ``act`` or ``policy`` to map
        raw observations to actions.
        """
        return {name: learner.policy for name, learner in self.learners.items()}

    def frozen(self, group: str, greedy: bool = True) -> PlayerSettings:
        """Return the current policy of ``group`` as an opponent that does not learn.

        Args:
            group: Name of the group.
            greedy: Take the most likely actions instead of sampling them. Defaults to True.
        """
        group, greedy = self._group(group), checked_bool("frozen", "greedy", greedy)
        settings: Any
        key, settings = next(
            (key, kept) for key, kept in self.settings.items() if group in key.split("+")
        )
        if key not in self.learners:
            return settings
        words = f"{settings.name} after {self.step:,} env-steps{', greedy' * greedy}"
        return Trained(self.learners[key], greedy, words, settings.name)

    # ---- inference ----

    @ordinary_modes()
    def act(
        self,
        obs: RowsByGroup,
        state: RowsByGroup | None = None,
        *,
        greedy: bool = True,
        mask: RowsByGroup | None = None,
        generator: torch.Generator | None = None,
    ) -> RowsByGroup | tuple[RowsByGroup, RowsByGroup]:
        """Compute the actions of this run's current policies, in the format of ``env.step``.

        Pass raw observations, which are normalized inside if necessary. For a policy with hidden
        state the result is ``(actions, state)``. Pass this state with the next observations.

        Args:
            obs: (..., D) torch tensor or NumPy array with any leading dimensions, such as (N, D) or
                (N, C, D). With several groups, a dict by group, which may omit groups.
            state: (..., M) hidden state, as a dict by group if there are several. Set the rows of
                new episodes to 0. Defaults to zeros.
            greedy: Take the most likely actions, as in ``evaluate``, instead of sampling them.
                Defaults to True.
            mask: (..., K) bool or int8, the allowed choices of all heads, as in ``info``. Required
                for groups with action masks.
            generator: ``torch.Generator`` on the run's device for random actions. Defaults to
                torch's global generator.

        Returns:
            Actions in the library and on the device of ``obs``, as a dict if ``obs`` is one. The
            shape is (...,) int32 for one discrete head, (..., H) int32 for several, and (..., H)
            float32 within the bounds for a Box.

        Raises:
            ParameterError: If an input has another shape or type, a mask is missing, or a group
                has a random policy.
        """
        names = obs if isinstance(obs, dict) else self.rollout.player_of
        modules: dict[str, Any] = {
            g.name: self._module(g.name) for g in self.batch.groups if g.name in names
        }
        known: dict[str, Any] = modules or dict.fromkeys(self.rollout.player_of)
        return inference.act(known, obs, greedy, mask, generator, state)

    @ordinary_modes()
    def policy(self, group: str | None = None) -> nn.Module:
        """Return a group's policy as a ``torch.nn.Module`` from raw observations to greedy actions.

        The module is a copy in evaluation mode that includes the normalization. It can be moved to
        another device, and further training does not change it. ``torch.export.export`` and
        ``torch.jit.trace`` accept it. Observations have shape (..., D), and actions are those of
        ``act``. For groups with action masks, the second input is the mask of allowed choices. With
        hidden state, ``policy(obs, state=state, start=start)`` returns ``(actions, state)``. Where
        ``start`` (...,) is True, an episode begins and the state is reset to 0 before the step.

        Args:
            group: Name of the group. May be omitted if there is only one.
        """
        return inference.standalone(self._module(self._group(group)))

    def export(self, path: str | PathLike[str], *, group: str | None = None) -> Path:
        """Export a group's policy as an ONNX file and return its path.

        This needs the packages ``onnx`` and ``onnxscript``. The input is ``obs`` (batch, D)
        float32, plus ``mask`` (batch, K) bool for groups with action masks. The output ``action``
        is the result of ``policy(group)``. With hidden state there are two more inputs, ``state``
        (batch, M) float32 and ``start`` (batch,) bool, and one more output, ``next_state``.

        Args:
            path: File that ends in ``.onnx``.
            group: Name of the group. May be omitted if there is only one.

        Raises:
            TrainingError: If a package is missing, the network cannot be exported, or the file
                cannot be written.
        """
        return inference.export_onnx(self.policy(group), path)

    def _group(self, name: str | None) -> str:
        """Validate the name of a group, which may be None if there is only one."""
        names = [g.name for g in self.batch.groups]
        if name is None and len(names) == 1:
            return names[0]
        return checked_choice("run", "group", name, names)

    def _module(self, name: str) -> Module:
        group = next(g for g in self.batch.groups if g.name == name)
        return self.rollout.player_of[name].module(self.rollout, group)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Set torch's modes for training for the duration of the context.

        TF32 is off. On a CPU, the number of threads depends on the size of the networks. With
        bfloat16, cuDNN benchmarks its convolution algorithms.
        """
        most = 0
        for learner in self.learners.values():
            most = max(most, learner.rows_at_once(self.rollout) * weights(learner.policy))
        worth = threads_worth(most) if self.device == "cpu" else nullcontext()
        fast = "bfloat16" in {getattr(s, "precision", None) for s in self.settings.values()}
        with ordinary_modes(self.device, tf32=False, benchmark=fast), worth:
            yield

    def iterate(self) -> None:
        """Collect one rollout and learn from it. A CUDA graph captures one such iteration."""
        self.rollout.collect()
        updates = [learner.update for learner in self.learners.values()]
        self.rollout.call_all([partial(update, self.rollout) for update in updates])
        self.episodes.add()

    def return_weights(self) -> None:
        """Copy weights that torch has moved back into the learner's own memory."""
        for learner in self.learners.values():
            if hasattr(learner, "return_weights"):
                learner.return_weights()

    def evaluate(self, episodes: int = 1000, **options: Any) -> Evaluation:
        """Evaluate this run's policies.

        Args:
            episodes: Number of evaluation episodes. Defaults to 1000.
            **options: Options of ``cupydrive.evaluate``.

        Returns:
            ``Evaluation`` with returns, lengths and metrics of the episodes.
        """
        return evaluate(self, episodes=episodes, **options)

    def render(self, path: str | PathLike[str] | None = None, **options: Any) -> Video:
        """Render episodes of this run's policies.

        Args:
            path: File to write. If None, no file is written.
            **options: Options of ``cupydrive.render``.

        Returns:
            ``Video``, which a notebook displays.
        """
        from cupydrive.rendering.video import render

        return render(self, path, **options)

    def explain(self, progress: bool = True) -> Explanation:
        """Find the first non-finite number of a failed training by replaying it.

        The replay starts at the last checkpoint, or at the start of the run if there is none. It
        takes at most twice the training time since then.

        Args:
            progress: Show a progress line.

        Returns:
            ``Explanation`` with the first non-finite number, its place, and the steps before it.

        Raises:
            TrainingError: If training has not failed since this run was created or loaded, several
                processes train it, or the run has no checkpoint and a replay from its first
                iteration would take more than a minute.
        """
        if self.explanation is None:
            from cupydrive.training.explain import explain

            self.explanation = explain(self, checked_bool("explain", "progress", progress))
            self.failed = None
        return self.explanation

    def plot(self, *keys: str, levels: dict[str, dict[str, float]] | None = None) -> Curves:
        """Plot learning curves as a Matplotlib figure.

        A notebook displays the figure, and ``.savefig(path)`` writes it.

        Args:
            *keys: Names of metrics, such as ``"losses/entropy"``. Defaults to the episodic return
                of every group.
            levels: Horizontal lines for comparison, ``{label: {key: value}}``.
        """
        from cupydrive.drawing.curves import curves

        title = f"{self.spec.name}, {self.num_envs:,} environments"
        return curves(self.metrics, keys or None, levels, title=title)

    # ---- state of the training ----

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all torch tensors of the training state by name, without copying them."""
        kept = {**self.episodes.tensors(), "iteration": self.rollout.iteration}
        kept |= {f"obs.{name}": obs[-1] for name, obs in self.rollout.obs.items()}
        kept |= {f"critic_obs.{name}": obs[-1] for name, obs in self.rollout.critic_obs.items()}
        kept |= {f"action_mask.{name}": mask[-1] for name, mask in self.rollout.action_mask.items()}
        kept |= self.memories()
        for name, learner in self.learners.items():
            kept |= {f"{name}/{key}": tensor for key, tensor in learner.tensors().items()}
        return kept

    def memories(self) -> dict[str, torch.Tensor]:
        """Return the hidden states of policies that do not learn, by name in a checkpoint.

        With them also return ``terminated`` and ``truncated`` of the latest step, because the next
        step resets the states of episodes that ended there.
        """
        found = {
            f"memory.{name}": memory
            for player in self.rollout.players
            if player not in self.learners.values()
            for name, memory in getattr(player, "memories", {}).items()
        }
        flags = ("terminated", "truncated") if found else ()
        return found | {name: getattr(self.rollout, name)[-1] for name in flags}

    def snapshot(self) -> dict[str, torch.Tensor]:
        """Copy the complete training state of all processes to the CPU.

        All processes that train this run must call it, and all get equal copies.
        """
        arrays = arrays_of(self.batch).items()
        flat = {
            name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in arrays
        }
        kept = {f"env/{name}": torch.from_numpy(array.copy()) for name, array in flat.items()}
        kept |= {name: tensor.detach().cpu().clone() for name, tensor in self.tensors().items()}
        return of_all_ranks(kept, shared_out(self), self.episodes.summed, self.shard)

    def restore(self, kept: dict[str, torch.Tensor]) -> None:
        """Write the result of ``snapshot`` back in place, including this process's environments.

        Raises:
            TrainingError: If a name, shape, type or range does not fit this run. The run is then
                unchanged.
        """
        own, arrays = self.tensors(), arrays_of(self.batch)
        kept = part(kept, shared_out(self), self.episodes.summed, self.shard)
        new = runfolder.fitting_arrays(kept, own, arrays, self.params.max_episode_steps)
        returns = {name: new[f"returns.{name}"] for name in self.batch.returns}
        state: Any = {kind: new[kind] for kind in BATCH_STATE}
        self.batch.set_state(state | {"returns": returns})
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(kept[name])
        self.forget_nonfinite()
        self.failed = self.explanation = None

    def forget_nonfinite(self) -> None:
        """Clear the records of non-finite numbers, because the run is in another state now."""
        self.rollout.nonfinite.fill_(NONE_FOUND)
        for learner in self.learners.values():
            learner.bad.zero_()

    # ---- files ----

    def as_json(self) -> dict:
        """Return the configuration of this run in the format of ``config.json``."""
        return self.config.as_json() | {"origin": self.origin, "total": self.total}

    def save(self, folder: str | PathLike[str], keep: int = 3) -> None:
        """Write the configuration and a checkpoint of the present state.

        If several processes train this run, all of them must call it, and rank 0 writes the files.

        Args:
            folder: Run folder. It is created if it does not exist.
            keep: Number of checkpoints to keep. Older ones are deleted. Defaults to 3.

        Raises:
            TrainingError: If another run writes into the folder, has written into it since this run
                was loaded, or the folder cannot be written. Existing files are kept.
            ParameterError: If ``keep`` is less than 1 or a setting cannot be saved. Nothing is
                written in this case.
        """
        keep, target = checked_int("save", "keep", keep), checked_path("save", "folder", folder)
        check_kept(self.settings)
        words, tensors = runfolder.not_written(target), self.snapshot()
        if self.shard.ranks.rank > 0:
            self.folder = target
            return
        with file_errors(TrainingError, words):
            (target / "checkpoints").mkdir(parents=True, exist_ok=True)
        with self.lock.hold(target), file_errors(TrainingError, words):
            runfolder.check_newest(target, self.step)
            content = runfolder.pack_checkpoint(self.spec.name, self.step, tensors)
            write_atomically(target / "config.json", runfolder.pack_config(self.as_json()))
            write_atomically(target / "checkpoints" / f"{self.step:015d}.pt", content.getvalue())
            # Remove old checkpoints, and temporary files of a killed process. The lock guarantees
            # that no other process is writing them.
            old = runfolder.checkpoints(target)[:-keep]
            for path in (*old, *(target / "checkpoints").glob(".*.part")):
                path.unlink(missing_ok=True)
        self.folder = target

    @classmethod
    def load(
        cls,
        folder: str | PathLike[str],
        device: str = "cpu",
        policies: Mapping[str, PolicySettings] | None = None,
        env: str | PathLike[str] | EnvSpec | None = None,
    ) -> Run:
        """Load a run at its last checkpoint. Code from the folder is never executed.

        Args:
            folder: Run folder.
            device: Device of the loaded run: ``"cuda"``, ``"cpu"`` or ``"auto"``.
            policies: Settings by policy name. Required for policies that are custom modules.
            env: Environment of the run, needed if it is your own and not yet registered: path of
                its Python file, or ``EnvSpec``. The folder names the file, but it is executed only
                if you pass it.

        Warns:
            CupydriveWarning: If the environment's files have changed since training.

        Raises:
            UnregisteredEnvironmentError: If ``env`` is needed. The message shows the correct call.
            DeviceError: If ``device`` is unknown or cannot be used here.
            TrainingError: If the folder holds no run, or a damaged one, or one of another
                environment.
        """
        chosen = choose(device)[0]
        source: Path = checked_path("load", "folder", folder)
        config = runfolder.read_config(source)
        if policies is not None:
            for name in checked_policies("load", policies, learning=True):
                checked_choice("load", "a name in policies", name, config["policies"])
        call = f"cupydrive.load({str(source)!r}, env={{}})"
        spec = envs.of_data(str(source), call, config["env"], config.get("origin"), env)
        return cls.restored(read_train_config(source, spec, chosen, policies), source)

    @classmethod
    def restored(cls, config: TrainConfig, folder: Path, share: int = 1) -> Run:
        """Restore a run with a given configuration from a folder's last checkpoint.

        It raises the errors of ``load``.

        Args:
            config: Configuration of the run.
            folder: Run folder with the checkpoint.
            share: Number of runs that share the memory of the device.
        """
        saved = runfolder.read_checkpoint(folder, config.spec.name)
        clock = saved["tensors"].get("env/clock")
        # Compare the number of environments before memory is allocated for them.
        found = 0 if clock is None else clock.numel() // CLOCK.itemsize
        if clock is None or clock.numel() != config.num_envs * CLOCK.itemsize:
            raise TrainingError(
                f"the checkpoint of {folder} has {found} environments, expected "
                f"{config.num_envs} as in its config.json"
            )
        try:
            run = cls(config, share)
            run.restore(saved["tensors"])
        except ParameterError as error:
            name = config.spec.name
            raise TrainingError(
                f"{folder / 'config.json'} does not fit {name!r} as it is now: {error}"
            ) from None
        except TrainingError as error:
            raise TrainingError(f"{folder}: {error}") from None
        run.total, run.step, run.folder = config.steps, saved["step"], folder
        for learner in run.learners.values():  # restores PQN's epsilon, which evaluations may use
            learner.schedule(run.step)
        rows = runfolder.read_metrics(folder)
        run.metrics = [row for row in rows if row["charts/global_step"] <= run.step]
        return run

    def __repr__(self) -> str:
        lines = [
            f"<Run {self.spec.name}: {self.step:,} env-steps of {self.num_envs:,} environments on "
            f"{self.device}"
        ]
        lines += [f"  {name}: {settings}" for name, settings in self.settings.items()]
        lines += [f"  {line}" for line in self.backends.values()]
        last = self.metrics[-1] if self.metrics else {}
        lines += [
            f"  {key}: {value:.4g}" for key, value in last.items() if "episodic_return" in key
        ]
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        from cupydrive.terminal.progress import image, preformatted

        return preformatted(repr(self)) + (image(self.plot()) if self.metrics else "")


def arrays_of(batch: Batch) -> dict[str, np.ndarray]:
    """Return copies of the arrays that make up the state of a ``Batch``, by name."""
    state: Any = batch.get_state()
    found = {kind: state[kind] for kind in BATCH_STATE}
    return found | {f"returns.{name}": array for name, array in state["returns"].items()}
