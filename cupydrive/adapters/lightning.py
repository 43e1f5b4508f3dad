"""Adapter to Lightning: a run as a ``LightningModule`` whose training step is one iteration.

Lightning's Trainer schedules iterations, logging, checkpoints and the end of training. The
iterations are those of ``cupydrive.train``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cupydrive.errors import OrderError, ParameterError, TrainingError
from cupydrive.executors import choose
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.names import NotCopied
from cupydrive.inputs.validation import validated
from cupydrive.protocols import LearnerSettings, ParamValue, PolicySettings
from cupydrive.spec import EnvSpec
from cupydrive.terminal.progress import Silent
from cupydrive.training.begin import begin, goal_of, refuse_for_run
from cupydrive.training.config import TrainConfig, check_players, drop_none, resolve
from cupydrive.training.loop import Loop, noted_interrupts
from cupydrive.training.ranks import require_equal
from cupydrive.training.run import Run
from cupydrive.training.runfolder import pack_metrics, unpack_metrics
from cupydrive.training.together import Alone

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

try:
    from lightning.pytorch import LightningModule
    from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy
except ImportError as missing:
    raise ImportError(
        "cupydrive.lightning needs Lightning: pip install lightning, or the extra `lightning`"
    ) from missing

KEY = "cupydrive"  # key of the run in Lightning's checkpoint
# Entries of Run.as_json() that a checkpoint must share with this run.
SAME = ("env", "params", "num_envs", "seed", "backend", "policies")


class RLModule(NotCopied, LightningModule):
    """A run that Lightning trains.

    A training step is one iteration of rollout and learning. Its results equal those of
    ``cupydrive.train`` with the same settings, bit for bit. ``global_step`` counts iterations, and
    ``charts/global_step`` counts environment steps. Training ends at the goal ``steps``, or earlier
    if the Trainer stops it. The whole training is one epoch. ``Trainer(limit_train_batches=50)``
    makes epochs of 50 iterations, after each of which ``EarlyStopping`` and ``ModelCheckpoint``
    run.

    Metrics have the names of ``Run.metrics``. As in ``cupydrive.train``, about 1,000 rows of them
    arrive from the device asynchronously, with a short delay. The module logs the newest row every
    ``log_every_n_steps`` iterations. At the end of an epoch it waits for the row of the last
    iteration. Between these points callbacks see the previous values. ``charts/episodic_return``
    exists after every environment has finished an episode. ``EarlyStopping(..., strict=False)``
    waits for it. Weights stay in the run, so that Lightning's model summary shows a single
    parameter.

    A Lightning checkpoint contains the content of a run folder, and loads with
    ``weights_only=True``. ``fit(..., ckpt_path=...)`` resumes exactly. Ctrl-C stops training
    at the end of an iteration, and ``run`` can be continued. A second Ctrl-C aborts immediately.
    Callbacks that change weights, gradients or learning rates have no effect on a run.

    With ``Trainer(devices=W, strategy="ddp")`` each of W processes steps a share of the
    environments. Gradients are reduced as in ``cupydrive.train`` with several processes, and not by
    Lightning's wrapper. Each process must create its own run, so pass an environment, not a
    ``Run``. Processes on CPUs are tested. Several GPUs are untested.

    The arguments are those of ``cupydrive.train``. The Trainer determines the device.

    Args:
        env: Name of an environment, path of its Python file, or ``EnvSpec``. Alternatively a
            ``Run`` to continue, which defines all other arguments except ``steps``.
        algorithm: ``PPO(...)``, ``A2C(...)``, ``DDPG(...)`` or one of their names. Defaults to the
            environment's suggestion.
        policies: Settings by group name, instead of ``algorithm``.
        steps: Total environment steps, rounded up to whole iterations. For a ``Run``, the number of
            additional environment steps, by default up to its total.
        num_envs: N, the number of environments of all processes.
        seed: Random seed. Defaults to 0.
        backend: ``"auto"``, ``"kernels"`` or ``"torch"``.
        **params: Parameters of the environment.

    Attributes:
        run: The ``Run``. None until ``fit`` creates it.
        goal: Environment steps after which training ends.

    Raises:
        ParameterError: If an argument is wrong, or the run has already reached its goal. ``fit``
            also raises it if an option of the Trainer would be ignored.

    Examples:
        >>> import cupydrive as cd
        >>> from cupydrive.lightning import RLModule
        >>> from lightning.pytorch import Trainer
        >>> module = RLModule("cartpole", cd.PPO(), num_envs=64, steps=20_000)
        >>> trainer = Trainer(
        ...     max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False
        ... )
        >>> trainer.fit(module)
    """

    def __init__(
        self,
        env: str | Path | EnvSpec | Run,
        algorithm: LearnerSettings | str | None = None,
        *,
        policies: Mapping[str, PolicySettings] | None = None,
        steps: int | None = None,
        num_envs: int | None = None,
        seed: int | None = None,
        backend: str | None = None,
        **params: ParamValue,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        # The only parameter that Lightning can move, cast and wrap. The weights of the run must
        # stay at the addresses that its kernels use.
        self.placeholder = torch.nn.Parameter(torch.zeros((), dtype=torch.float32, device="cpu"))
        given: dict[str, Any] = {"num_envs": num_envs, "seed": seed, "backend": backend}
        if isinstance(env, Run):
            refuse_for_run(
                env,
                {"algorithm": algorithm, "policies": policies} | given,
                params,
                "auto",
                "RLModule",
            )
            found: dict[str, Any] = validated("RLModule", TrainConfig, drop_none({"steps": steps}))
            self.run, self.config = env, env.config
            self.goal = goal_of(env, found.get("steps"))
        else:
            self.config = resolve(
                env, algorithm, policies, params, call=RLModule, steps=steps, **given
            )
            check_players(self.config)
            self.run, self.goal = None, self.config.steps  # type: ignore[assignment]
        # began: environment steps done when training starts. resumed: a checkpoint was loaded.
        self.began, self.resumed = 0, False
        self.loop: Loop = None  # type: ignore[assignment]
        self.told = 0  # number of rows of metrics that were logged
        # last: this iteration ends an epoch. stopped: an interrupt ends training. whole: no
        # iteration was cut short. heard: Ctrl-C was pressed.
        self.last, self.stopped, self.whole, self.heard = False, False, True, False

    # ---- before training ----

    def setup(self, stage: str) -> None:
        """Create the run in the process that trains it, on the Trainer's device."""
        if stage == "fit":
            _check_trainer(self.trainer, self.run)
        processes, ranks = (
            self.trainer.num_devices * self.trainer.num_nodes,
            self._made().shard.ranks,
        )
        if ranks.size != processes:
            fix = (
                f"Pass RLModule({self.run.spec.name!r}, ...), so that each process makes its share"
            )
            _refuse("devices", processes, f"The run was made for {ranks.size}. {fix}")
        self.began, self.resumed = self.run.step, False

    def _made(self) -> Run:
        """Return the run. Create it on the first call."""
        if self.run is None:
            self.run = begin(replace(self.config, device=choose(self.device.type)[0]))
        return self.run

    def configure_optimizers(self) -> Iterations:
        """Return an optimizer whose step is an iteration. Lightning counts optimizer steps."""
        return Iterations([self.placeholder], self._iterate)

    def train_dataloader(self) -> Batches:
        """Return one empty batch per iteration of the training.

        Raises:
            ParameterError: If the run has already done its environment steps.
        """
        if self.run.step >= self.goal:
            if not self.resumed:
                raise ParameterError(
                    f"RLModule: the run has done its {self.run.step:,} env-steps. Pass steps= for "
                    f"more"
                )
            self.trainer.should_stop = True  # the checkpoint is of a finished run
        return Batches(max(0, math.ceil((self.goal - self.began) / self.run.steps_per_iteration)))

    def on_fit_start(self) -> None:
        """Log the configuration of the run."""
        for logger in self.loggers if self.trainer.enable_autolog_hparams else []:
            logger.log_hyperparams(_as_json(self.run.as_json()))

    # ---- training ----

    def on_train_start(self) -> None:
        """Prepare the loop. On a GPU this captures an iteration as a CUDA graph.

        Raises:
            ParameterError: If ``fit`` received training data.
        """
        if not isinstance(self.trainer.train_dataloader, Batches):
            given = shown(self.trainer.train_dataloader)
            raise ParameterError(
                f"RLModule generates its own training data: got train_dataloaders = {given}, "
                f"expected None. Call fit(module)"
            )
        run = self.run
        config = replace(self.config, steps=self.goal, out=None, cuda_graph=None, progress=False)
        require_equal(run, config)
        self.loop = Loop(Alone(run), [config], Silent())
        self.told, self.stopped, self.heard = len(run.metrics), False, False
        with run.computing():
            self.loop.prepare()

    def training_step(self, batch: int, batch_idx: int) -> None:
        """Run one iteration.

        The newest row of metrics is logged where loggers write one, and at the end of an epoch.

        Args:
            batch: Empty batch of ``train_dataloader``. It is ignored.
            batch_idx: Index of the batch. It is ignored.
        """
        trainer, run = self.trainer, self.run
        ends = (
            run.step + run.steps_per_iteration >= self.goal
            or trainer.global_step + 1 == trainer.max_steps
        )
        self.last = ends or trainer.is_last_batch
        self.optimizers().step()
        every = trainer.log_every_n_steps or math.inf
        if self.last or self.stopped or trainer.global_step % every == 0:
            self._hand_over()

    def _iterate(self) -> None:
        run, self.whole = self.run, False
        with run.computing(), noted_interrupts() as pressed:
            self.loop.return_weights()  # Lightning's callbacks run between iterations
            self.stopped = self.loop.advance(lambda: self.heard or pressed())
            if self.last or self.stopped:
                self.loop.flush()
            # with several processes the interrupt may take effect only in a later iteration
            self.heard |= pressed()
            self.stopped |= self.heard and not self.loop.several
        self.whole = True

    def _hand_over(self) -> None:
        """Log the newest row of metrics, unless it is logged already.

        Lightning needs a third of a millisecond per number.
        """
        rows = self.run.metrics
        if len(rows) > self.told and not self.trainer.barebones:
            for name, value in rows[-1].items():
                # on the CPU, where loggers read it
                number = torch.tensor(float(value), dtype=torch.float64, device="cpu")
                self.log(
                    name, number, prog_bar="episodic_return" in name, on_step=True, on_epoch=False
                )
        self.told = len(rows)

    def on_train_batch_end(self, outputs: object, batch: int, batch_idx: int) -> None:
        """End training at the goal, or after an interrupt that all processes have seen.

        Args:
            outputs: Result of ``training_step``. It is ignored.
            batch: Empty batch. It is ignored.
            batch_idx: Index of the batch. It is ignored.

        Raises:
            KeyboardInterrupt: After an interrupt.
        """
        if self.stopped:
            self.on_train_end()
            raise KeyboardInterrupt
        if self.run.step >= self.goal:
            self.trainer.should_stop = True

    def on_train_end(self) -> None:
        """Save the metrics that are still in transfer from the device."""
        self.loop.flush()
        self.loop.finish()
        self.loop = None  # type: ignore[assignment]

    # ---- checkpoints ----

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        """Add the content of a run folder to Lightning's checkpoint. All processes must call this.

        Raises:
            OrderError: If there is no run yet, or if an error or a second Ctrl-C aborted an
                iteration. Lightning then writes nothing, and an earlier checkpoint stays.
        """
        if self.run is None or not self.whole:
            why = "there is no run yet" if self.run is None else "an iteration has not ended"
            raise OrderError(f"RLModule: nothing is saved, since {why}")
        if self.loop is not None:
            self.loop.flush()  # detect non-finite numbers before anything is saved
        tensors, run = self.run.snapshot(), self.run
        if run.shard.ranks.rank == 0:
            config, metrics = json.dumps(run.as_json()), pack_metrics(run.metrics).decode()
            kept = {
                "began": self.began,
                "step": run.step,
                "config": config,
                "metrics": metrics,
                "tensors": tensors,
            }
            checkpoint[KEY] = kept

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        """Continue from the run in Lightning's checkpoint.

        Raises:
            TrainingError: If the checkpoint has no run, or one of another environment or with other
                settings. Nothing has changed then.
        """
        if KEY not in checkpoint:
            raise TrainingError("this checkpoint has no run. Pass one that an RLModule has saved")
        kept, run = checkpoint[KEY], self._made()
        mine, theirs = _as_json(run.as_json()), json.loads(kept["config"])
        for name in SAME:
            if mine[name] != theirs.get(name):
                raise TrainingError(
                    f"{name}: got {shown(theirs.get(name))} in the checkpoint, expected "
                    f"{shown(mine[name])}. Make the RLModule with the settings of that run, "
                    f"or train without ckpt_path"
                )
        run.restore(kept["tensors"])
        run.step, run.metrics = kept["step"], unpack_metrics(kept["metrics"].encode())
        self.began, self.resumed = kept["began"], True


class Iterations(torch.optim.Optimizer):
    """Optimizer for Lightning, which counts its steps. A step is an iteration.

    Args:
        params: Lightning's parameters, which do not change.
        iterate: Runs one iteration.
    """

    def __init__(self, params: list[torch.nn.Parameter], iterate: Callable[[], None]) -> None:
        super().__init__(params, {})
        self.iterate = iterate

    def step(self, closure: Callable | None = None) -> None:
        """Call Lightning's hooks, then run an iteration."""
        if closure is not None:
            closure()
        self.iterate()


class Batches:
    """Data for Lightning: one number per iteration of the training.

    It has no state, so that it can be resumed anywhere. The run's own snapshot has its position.

    Args:
        count: Number of batches.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def state_dict(self) -> dict:
        """Return an empty dictionary."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Do nothing."""


def _check_trainer(trainer: Trainer, run: Run | None) -> None:
    """Raise ``ParameterError`` if a Trainer has an option that a run cannot use or would ignore."""
    strategy, where = trainer.strategy, trainer.strategy.root_device.type
    known = isinstance(strategy, SingleDeviceStrategy | DDPStrategy) and not isinstance(
        strategy, DeepSpeedStrategy
    )
    if not known or getattr(strategy, "_start_method", "popen") != "popen":
        _refuse("strategy", type(strategy).__name__, "Pass strategy='auto', or 'ddp' in a script")
    if where not in ("cpu", "cuda") or (run is not None and run.device != where):
        _refuse(
            "accelerator",
            where,
            f"Kernels of this run need {'a CPU or an NVIDIA GPU' if run is None else run.device!r}",
        )
    if trainer.precision != "32-true":
        _refuse(
            "precision",
            trainer.precision,
            "Leave it out. PPO, A2C and PQN have a setting precision=",
        )


def _refuse(name: str, value: object, fix: str) -> None:
    """Raise ``ParameterError`` for an option of a Trainer."""
    raise ParameterError(f"RLModule: Trainer({name}={shown(value)}) cannot train a run. {fix}")


def _as_json(config: dict) -> dict:
    """Convert a configuration to its form after a round trip through JSON. Tuples become lists."""
    return json.loads(json.dumps(config))
