"""Run: an environment, the policies that learn in it, and everything that their future depends on.

A ``Run`` in memory is what a run folder (``runfolder.py``) keeps on disk. What draws is imported
where it is used: to train, nobody needs Matplotlib or a video codec.
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


WARM_STEPS = 128  # of a rollout in which nobody learns
# of a batch's state, besides the returns of groups
BATCH_STATE = ("seed", "state", "clock", "metrics")


class Run(NotCopied):
    """Policies learning in N environments; made by ``cupydrive.train``.

    Where several processes train one run together (``torch.distributed``), each has a ``Run`` of
    its own, with equal weights and a share of the environments.

    Args:
        config: What it is made of.
        share: Number of runs that will share the device: sizes of launches are chosen for a part of
            it.

    Attributes:
        shard: ``Shard``: which of the environments this process has.
        step: Env-steps done.
        backends: By name of a learning policy, one line about the backend that it got and why.
            Under ``all rollouts``, whether a rollout is one launch, and why.
        seconds: Spent training in this process, after set-up and capture.
        interrupted: Whether Ctrl-C, or what its callback returned, ended the training that came
            last.
        metrics: One dictionary per logged interval.
        policies: Torch module by policy name, of those that learn.
        failed: ``Failure`` if the training that came last met a non-finite number, until that is
            explained.
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
        self.origin = envs.origin(self.spec)  # of the files as they are compiled now
        self.lock = runfolder.FolderLock()
        self.failed: Failure | None = None
        self.explanation: Explanation | None = None
        self.shard = Shard(self.num_envs, current_ranks())
        where = executor(self.device, share=share)
        # what a learner of the caller's own draws
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
        """Torch module by policy name, of those that learn.

        They are the networks alone: they take observations as ``normalize_obs`` leaves them and
        return parameters of a distribution and a value. ``act`` and ``policy`` take raw
        observations and return actions.
        """
        return {name: learner.policy for name, learner in self.learners.items()}

    def frozen(self, group: str, greedy: bool = True) -> PlayerSettings:
        """Return settings that play ``group`` as this run does now, without learning."""
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
        """Return the actions that this run's policies take now, as ``env.step`` takes them.

        Observations are those of the environment, not normalised; on a run in training it is the
        policy of this moment. For a policy with hidden state the result is ``(actions, state)``:
        pass that state with the next observations.

        Args:
            obs: (..., D) torch tensor or NumPy array, any leading dimensions, (N, D) or (N, C, D)
                say; a dict by group if there are several groups, in which groups may be left out.
            state: (..., M) hidden state, by group if there are several. Set rows to 0 where an
                episode begins. None: zeros.
            greedy: The likeliest actions, those of ``evaluate``, instead of random ones.
            mask: (..., K) bool or int8, the allowed choices of all heads, as ``info`` has them.
                Groups with masks need it.
            generator: ``torch.Generator`` on the run's device for random actions; None: torch's
                own.

        Returns:
            By group if ``obs`` is, in its library and on its device: int32 (...,) for one discrete
            head, else (..., H); float32 (..., H) within the bounds for a Box.

        Raises:
            ParameterError: If an input has another shape or type, a mask is missing, or a group
                plays at random.
        """
        names = obs if isinstance(obs, dict) else self.rollout.player_of
        modules: dict[str, Any] = {
            g.name: self._module(g.name) for g in self.batch.groups if g.name in names
        }
        known: dict[str, Any] = modules or dict.fromkeys(self.rollout.player_of)
        return inference.act(known, obs, greedy, mask, generator, state)

    @ordinary_modes()
    def policy(self, group: str | None = None) -> nn.Module:
        """Return a group's policy as a ``torch.nn.Module`` from raw observations (..., D) to greedy
        actions, as of ``act``.

        It is a copy in evaluation mode, with the normalisation inside: it can be moved to another
        device, and training on does not change it. ``torch.export.export`` and ``torch.jit.trace``
        accept it. Its second input is the mask of allowed choices, for groups with masks. With
        hidden state, ``policy(obs, state=state, start=start)`` returns ``(actions, state)``. Where
        ``start`` (...,) is true, an episode begins and the state is set to 0 before the step.

        Args:
            group: Name; None: the only group.
        """
        return inference.standalone(self._module(self._group(group)))

    def export(self, path: str | PathLike[str], *, group: str | None = None) -> Path:
        """Write a group's policy as an ONNX file and return its path; needs the packages ``onnx``
        and ``onnxscript``.

        Args:
            path: File that ends in ``.onnx``. Its input is ``obs`` (batch, D) float32, and ``mask``
                (batch, K) bool where choices may be forbidden. Its output ``action`` is what
                ``policy(group)`` returns. With hidden state, the inputs ``state`` (batch, M)
                float32 and ``start`` (batch,) bool, and the output ``next_state``, are added.
            group: Name; None: the only group.

        Raises:
            TrainingError: If a package is missing, the network cannot be exported, or the file
                cannot be written.
        """
        return inference.export_onnx(self.policy(group), path)

    def _group(self, name: str | None) -> str:
        """Return the name of a group, by default of the only one."""
        names = [g.name for g in self.batch.groups]
        if name is None and len(names) == 1:
            return names[0]
        return checked_choice("run", "group", name, names)

    def _module(self, name: str) -> Module:
        group = next(g for g in self.batch.groups if g.name == name)
        return self.rollout.player_of[name].module(self.rollout, group)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Compute as training does: products are not rounded to TF32. A CPU takes as many threads
        as the networks are worth. With bfloat16, cuDNN measures its algorithms of convolutions.
        """
        most = 0
        for learner in self.learners.values():
            most = max(most, learner.rows_at_once(self.rollout) * weights(learner.policy))
        worth = threads_worth(most) if self.device == "cpu" else nullcontext()
        fast = "bfloat16" in {getattr(s, "precision", None) for s in self.settings.values()}
        with ordinary_modes(self.device, tf32=False, benchmark=fast), worth:
            yield

    def iterate(self) -> None:
        """Collect one rollout and learn from it: what a CUDA graph captures."""
        self.rollout.collect()
        updates = [learner.update for learner in self.learners.values()]
        self.rollout.call_all([partial(update, self.rollout) for update in updates])
        self.episodes.add()

    def return_weights(self) -> None:
        """Copy weights that torch has put elsewhere back to where they are learnt."""
        for learner in self.learners.values():
            if hasattr(learner, "return_weights"):
                learner.return_weights()

    def evaluate(self, episodes: int = 1000, **options: Any) -> Evaluation:
        """Return the ``Evaluation`` of this run's policies; ``options`` as in
        ``cupydrive.evaluate``.
        """
        return evaluate(self, episodes=episodes, **options)

    def render(self, path: str | PathLike[str] | None = None, **options: Any) -> Video:
        """Return a ``Video`` of this run's policies, written to ``path`` if given; options are
        ``cupydrive.render``'s.
        """
        from cupydrive.rendering.video import render

        return render(self, path, **options)

    def explain(self, progress: bool = True) -> Explanation:
        """Explain why training failed: repeat the run from its last checkpoint, or from its start,
        up to the failure.

        This takes at most twice the training time since then.

        Args:
            progress: Show a progress line.

        Returns:
            ``Explanation``: the first non-finite number, its place, and what led there.

        Raises:
            TrainingError: If training has not failed since this run was made or loaded, several
                processes train it, or a replay from its start would take more than a minute.
        """
        if self.explanation is None:
            from cupydrive.training.explain import explain

            self.explanation = explain(self, checked_bool("explain", "progress", progress))
            self.failed = None
        return self.explanation

    def plot(self, *keys: str, levels: dict[str, dict[str, float]] | None = None) -> Curves:
        """Return learning curves as a Matplotlib figure, which a notebook shows and
        ``.savefig(path)`` writes.

        Args:
            *keys: Names of metrics, such as ``"losses/entropy"``; none: the episodic return of
                every group.
            levels: Horizontal lines to compare with, ``{label: {key: value}}``.
        """
        from cupydrive.drawing.curves import curves

        title = f"{self.spec.name}, {self.num_envs:,} environments"
        return curves(self.metrics, keys or None, levels, title=title)

    # ---- what the future depends on ----

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return every torch tensor that the future depends on, by name; the tensors themselves,
        not copies.
        """
        kept = {**self.episodes.tensors(), "iteration": self.rollout.iteration}
        kept |= {f"obs.{name}": obs[-1] for name, obs in self.rollout.obs.items()}
        kept |= {f"critic_obs.{name}": obs[-1] for name, obs in self.rollout.critic_obs.items()}
        kept |= {f"action_mask.{name}": mask[-1] for name, mask in self.rollout.action_mask.items()}
        for name, learner in self.learners.items():
            kept |= {f"{name}/{key}": tensor for key, tensor in learner.tensors().items()}
        return kept

    def snapshot(self) -> dict[str, torch.Tensor]:
        """Return copies on the CPU of everything that the future depends on, of all processes that
        train this run.

        All of them must call it, and get equal copies.
        """
        arrays = arrays_of(self.batch).items()
        flat = {
            name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in arrays
        }
        kept = {f"env/{name}": torch.from_numpy(array.copy()) for name, array in flat.items()}
        kept |= {name: tensor.detach().cpu().clone() for name, tensor in self.tensors().items()}
        return of_all_ranks(kept, shared_out(self), self.episodes.summed, self.shard)

    def restore(self, kept: dict[str, torch.Tensor]) -> None:
        """Write what ``snapshot`` returned back, in place: of environments, those of this process.

        Raises:
            TrainingError: If a name, shape, type or range does not fit this run; nothing has
                changed then.
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
        """Count all numbers so far as finite: the run is at another moment now than when one was
        not.
        """
        self.rollout.nonfinite.fill_(NONE_FOUND)
        for learner in self.learners.values():
            learner.bad.zero_()

    # ---- files ----

    def as_json(self) -> dict:
        """Return what this run is made of, as ``config.json`` holds it."""
        return self.config.as_json() | {"origin": self.origin, "total": self.total}

    def save(self, folder: str | PathLike[str], keep: int = 3) -> None:
        """Write the configuration and a checkpoint of this moment; keep the last ``keep``
        checkpoints.

        Of several processes that train this run all must call it, and the first writes.

        Raises:
            TrainingError: If another run writes into the folder, has written into it since this one
                was loaded, or it cannot be written; files that were there stay.
            ParameterError: If ``keep`` is less than 1 or a setting cannot be saved; nothing is
                written then.
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
            # Besides checkpoints that are too old, files that a killed process was writing: nobody
            # else writes now.
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
        """Return the run of a folder at its last checkpoint; nothing in the folder can run.

        Args:
            folder: Run folder.
            device: Where to go on: ``"cuda"``, ``"cpu"`` or ``"auto"``.
            policies: Settings by policy name, needed where a policy is a module of one's own.
            env: The environment if it is one of your own and not registered: path of its Python
                file, or ``EnvSpec``. The folder says which file that was, but only you can have it
                loaded.

        Warns:
            CupydriveWarning: If the environment's files have changed since.

        Raises:
            UnregisteredEnvironmentError: If ``env`` is needed; the message is the call that works.
            DeviceError: If ``device`` is unknown or cannot be used here.
            TrainingError: If there is no run, or it is damaged, or of another environment.
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
        """Return the run of a folder at its last checkpoint; errors are those of ``load``."""
        saved = runfolder.read_checkpoint(folder, config.spec.name)
        clock = saved["tensors"].get("env/clock")
        # before memory is taken for them
        if clock is None or clock.numel() != config.num_envs * CLOCK.itemsize:
            raise TrainingError(
                f"the checkpoint of {folder} is not of the {config.num_envs} environments of its "
                f"config.json"
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
    """Return copies of the arrays that the future of a ``Batch`` depends on, by name."""
    state: Any = batch.get_state()
    found = {kind: state[kind] for kind in BATCH_STATE}
    return found | {f"returns.{name}": array for name, array in state["returns"].items()}
