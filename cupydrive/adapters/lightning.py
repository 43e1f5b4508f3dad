"""The adapter to Lightning: a run as a ``LightningModule`` whose training step is one iteration.

Lightning's Trainer says when to iterate, log, save and stop; what an iteration computes is what
``cupydrive.train`` computes.
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
from cupydrive.inputs.arguments import checked_count, shown
from cupydrive.inputs.names import NotCopied
from cupydrive.protocols import LearnerSettings, ParamValue, PolicySettings
from cupydrive.spec import EnvSpec
from cupydrive.terminal.progress import Silent
from cupydrive.training.begin import begin, goal_of, refuse_for_run
from cupydrive.training.config import check_players, resolve
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

KEY = "cupydrive"  # of a run in Lightning's checkpoint
# of Run.as_json(), which a checkpoint must share
SAME = ("env", "params", "num_envs", "seed", "backend", "policies")


class RLModule(NotCopied, LightningModule):
    """A run that Lightning trains: ``Trainer(...).fit(RLModule("cartpole", cd.PPO(), num_envs=64,
    steps=200_000))``.

    A training step is one iteration, rollout and learning, with the bits that ``cupydrive.train``
    gives with equal settings, and ``global_step`` counts iterations; ``charts/global_step`` counts
    env-steps. Training ends at the goal, ``steps``, or before it where the Trainer says so. An
    epoch is all of it; ``Trainer(limit_train_batches=50)`` makes epochs of 50 iterations, after
    which ``EarlyStopping`` looks and ``ModelCheckpoint`` saves.

    Metrics have the names of ``Run.metrics``, whose rows arrive from the device as in
    ``cupydrive.train``: some 1,000 in a run, a little late, and no iteration waits for one. Every
    ``log_every_n_steps`` iterations Lightning is given the newest row, and at the end of an epoch,
    where training waits, that of the epoch's last iterations; in between callbacks see what they
    saw before. ``charts/episodic_return`` is there once each environment has ended an episode:
    ``EarlyStopping(..., strict=False)`` waits for it. Weights stay in the run: Lightning's summary
    of the model counts a single number.

    A checkpoint of Lightning's holds what a run folder holds, and loads with ``weights_only=True``;
    ``fit(..., ckpt_path=...)`` goes on bit for bit. Lightning hears of Ctrl-C at the end of an
    iteration, from where ``run`` can go on; pressed twice, it ends at once. Callbacks that change
    weights, gradients or learning rates have no effect on a run.

    With ``Trainer(devices=W, strategy="ddp")`` each of W processes steps a share of the
    environments, and gradients are summed as ``cupydrive.train`` sums them in several processes;
    Lightning's wrapper sees none of them. The run must be made in each process: pass what it is
    made of, not a ``Run``. Processes on CPUs are tested, several GPUs have not been tried.

    The arguments are those of ``cupydrive.train``; the device is the Trainer's.

    Args:
        env: Name of an environment, path of its Python file, or ``EnvSpec``; or a ``Run`` that is
            to go on, which brings all that it was made of.
        algorithm: ``PPO(...)``, ``A2C(...)``, ``DDPG(...)``, their names, or None: what the
            environment suggests.
        policies: Settings by group name instead.
        steps: Env-steps in all, rounded up to whole iterations; for a ``Run``: more of them, by
            default up to its total.
        num_envs: N, of all processes.
        seed: Of everything random; None: 0.
        backend: ``"auto"``, ``"kernels"`` or ``"torch"``.
        **params: Parameters of the environment.

    Attributes:
        run: The ``Run``; None until ``fit`` has made it.
        goal: Env-steps after which training ends.

    Raises:
        ParameterError: If an argument is wrong, or a run has reached its goal; and by ``fit``, if
            the Trainer is to do something that would be ignored.
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
        # All that Lightning can move, cast and wrap: a run's own weights stay where its kernels
        # know them.
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
            steps = None if steps is None else checked_count("RLModule", "steps", steps)
            self.run, self.config, self.goal = env, env.config, goal_of(env, steps)
        else:
            self.config = resolve(
                env, algorithm, policies, params, call=RLModule, steps=steps, **given
            )
            check_players(self.config)
            self.run, self.goal = None, self.config.steps  # type: ignore[assignment]
        # env-steps done when training began; whether a checkpoint was read since
        self.began, self.resumed = 0, False
        self.loop: Loop = None  # type: ignore[assignment]
        self.told = 0  # rows of metrics that Lightning knows
        # Whether this iteration is the last of an epoch, an interrupt ends training, and no
        # iteration was cut short.
        self.last, self.stopped, self.whole, self.heard = False, False, True, False

    # ---- before training ----

    def setup(self, stage: str) -> None:
        """Make the run, in the process that trains it, on the Trainer's device."""
        if stage == "fit":
            _check_trainer(self.trainer, self.run)
        processes, ranks = (
            self.trainer.num_devices * self.trainer.num_nodes,
            self._made().shard.ranks,
        )
        if ranks.size != processes:
            fix = (
                f"pass RLModule({self.run.spec.name!r}, ...), so that each process makes its share"
            )
            _refuse("devices", processes, f"the run was made for {ranks.size}; {fix}")
        self.began, self.resumed = self.run.step, False

    def _made(self) -> Run:
        """Return the run, which is made if there is none."""
        if self.run is None:
            self.run = begin(replace(self.config, device=choose(self.device.type)[0]))
        return self.run

    def configure_optimizers(self) -> Iterations:
        """Return what Lightning counts steps of: an optimizer whose step is an iteration."""
        return Iterations([self.placeholder], self._iterate)

    def train_dataloader(self) -> Batches:
        """Return as many batches of nothing as training has iterations."""
        if self.run.step >= self.goal:
            if not self.resumed:
                raise ParameterError(
                    f"RLModule: the run has done its {self.run.step:,} env-steps; pass steps= for "
                    f"more"
                )
            self.trainer.should_stop = True  # a checkpoint of a run that is done: nothing is left
        return Batches(max(0, math.ceil((self.goal - self.began) / self.run.steps_per_iteration)))

    def on_fit_start(self) -> None:
        """Tell loggers what the run is made of."""
        for logger in self.loggers if self.trainer.enable_autolog_hparams else []:
            logger.log_hyperparams(_as_json(self.run.as_json()))

    # ---- training ----

    def on_train_start(self) -> None:
        """Get ready to iterate; on a GPU an iteration is captured."""
        if not isinstance(self.trainer.train_dataloader, Batches):
            given = shown(self.trainer.train_dataloader)
            raise ParameterError(
                f"RLModule: train_dataloaders = {given}: a run makes its own data; call "
                f"fit(module) without"
            )
        run = self.run
        config = replace(self.config, steps=self.goal, out=None, cuda_graph=None, progress=False)
        require_equal(run, config)
        self.loop = Loop(Alone(run), [config], Silent())
        self.told, self.stopped, self.heard = len(run.metrics), False, False
        with run.computing():
            self.loop.prepare()

    def training_step(self, batch: int, batch_idx: int) -> None:
        """Iterate once; hand the newest row of metrics over where loggers write one, and at the end
        of an epoch.
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
            # of several processes one may be asked in a later iteration only
            self.heard |= pressed()
            self.stopped |= self.heard and not self.loop.several
        self.whole = True

    def _hand_over(self) -> None:
        """Log the newest row of metrics if it has not been; Lightning takes a third of a
        millisecond for each number.
        """
        rows = self.run.metrics
        if len(rows) > self.told and not self.trainer.barebones:
            for name, value in rows[-1].items():
                # where loggers read it
                number = torch.tensor(float(value), dtype=torch.float64, device="cpu")
                self.log(
                    name, number, prog_bar="episodic_return" in name, on_step=True, on_epoch=False
                )
        self.told = len(rows)

    def on_train_batch_end(self, outputs: object, batch: int, batch_idx: int) -> None:
        """End training at the goal, or by an interrupt that all processes have heard of."""
        if self.stopped:
            self.on_train_end()
            raise KeyboardInterrupt
        if self.run.step >= self.goal:
            self.trainer.should_stop = True

    def on_train_end(self) -> None:
        """Keep what is still on its way from the device."""
        self.loop.flush()
        self.loop.finish()
        self.loop = None  # type: ignore[assignment]

    # ---- checkpoints ----

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        """Put what a run folder holds into Lightning's checkpoint; all processes do.

        Raises:
            OrderError: If there is no run yet, or an error, or Ctrl-C pressed twice, ended an
            iteration in its middle:
                Lightning writes nothing then, and an earlier checkpoint stays.
        """
        if self.run is None or not self.whole:
            why = "there is no run yet" if self.run is None else "an iteration has not ended"
            raise OrderError(f"RLModule: {why}, so that nothing is saved")
        if self.loop is not None:
            self.loop.flush()  # a number that is not finite is found before anything is saved
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
        """Go on where the run in Lightning's checkpoint was.

        Raises:
            TrainingError: If there is none, or one of another environment or other settings.
                Nothing has changed then.
        """
        if KEY not in checkpoint:
            raise TrainingError("this checkpoint holds no run; pass one that an RLModule has saved")
        kept, run = checkpoint[KEY], self._made()
        mine, theirs = _as_json(run.as_json()), json.loads(kept["config"])
        for name in SAME:
            if mine[name] != theirs.get(name):
                raise TrainingError(
                    f"{name} of the checkpoint is {shown(theirs.get(name))}, and "
                    f"{shown(mine[name])} here. Make the RLModule from the settings of that run, "
                    f"or begin without ckpt_path"
                )
        run.restore(kept["tensors"])
        run.step, run.metrics = kept["step"], unpack_metrics(kept["metrics"].encode())
        self.began, self.resumed = kept["began"], True


class Iterations(torch.optim.Optimizer):
    """What Lightning takes for an optimizer, and counts the steps of: a step is an iteration.

    Args:
        params: Parameters of Lightning's, which do not change.
        iterate: Runs one iteration.
    """

    def __init__(self, params: list[torch.nn.Parameter], iterate: Callable[[], None]) -> None:
        super().__init__(params, {})
        self.iterate = iterate

    def step(self, closure: Callable | None = None) -> None:
        """Call Lightning's hooks, and iterate."""
        if closure is not None:
            closure()
        self.iterate()


class Batches:
    """What Lightning takes for data: as many numbers as training has iterations.

    It can be resumed anywhere, since it holds nothing: where a run is, its own snapshot says.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def state_dict(self) -> dict:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Do nothing."""


def _check_trainer(trainer: Trainer, run: Run | None) -> None:
    """Raise ``ParameterError`` if a Trainer is set to something that a run cannot do, or would
    ignore.
    """
    strategy, where = trainer.strategy, trainer.strategy.root_device.type
    known = isinstance(strategy, SingleDeviceStrategy | DDPStrategy) and not isinstance(
        strategy, DeepSpeedStrategy
    )
    if not known or getattr(strategy, "_start_method", "popen") != "popen":
        _refuse("strategy", type(strategy).__name__, "pass strategy='auto', or 'ddp' in a script")
    if where not in ("cpu", "cuda") or (run is not None and run.device != where):
        _refuse(
            "accelerator",
            where,
            f"kernels of this run need {'a CPU or an NVIDIA GPU' if run is None else run.device!r}",
        )
    if trainer.precision != "32-true":
        _refuse(
            "precision", trainer.precision, "leave it out; PPO and A2C have a setting precision="
        )


def _refuse(name: str, value: object, fix: str) -> None:
    """Raise ``ParameterError`` for an argument of a Trainer."""
    raise ParameterError(f"RLModule: Trainer({name}={shown(value)}) cannot train a run: {fix}")


def _as_json(config: dict) -> dict:
    """Return a configuration as JSON returns it: lists instead of tuples."""
    return json.loads(json.dumps(config))
