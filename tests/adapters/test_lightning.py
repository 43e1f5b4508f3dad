"""Lightning's Trainer trains a run with the bits of ``cd.train``; its checkpoints go on, its
loggers and callbacks hear.
"""

import csv
import json
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import lamps
import pytest
import torch
from conftest import optional, run_python
from equal_runs import rows, same

import cupydrive as cd
from cupydrive.errors import CupydriveError, ParameterError, TrainingError

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    # Lightning flattens its data by a class that torch 2.13 calls deprecated.
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    # The Trainer that goes on from a checkpoint needs no callback that saves.
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks"),
]
SETTINGS = cd.PPO(num_steps=8, hidden=(16,), learning_rate=((0, 1e-2), (2000, 1e-4)))
ENVS, ITERATIONS = 20, 8
STEPS = ENVS * SETTINGS.num_steps * ITERATIONS
KINDS = {
    "kernels": ("cartpole", SETTINGS, {"backend": "kernels"}),
    "torch": ("cartpole", SETTINGS, {"backend": "torch"}),
    "hidden state": (
        "cartpole",
        cd.PPO(num_steps=8, network=cd.Network(hidden=(16,), core=cd.GRU(16))),
        {"backend": "kernels"},
    ),
    "images": (
        lamps.lamps(1, "float32"),
        cd.PPO(num_steps=8, network=cd.Network(conv=cd.Conv((4,)), hidden=(16,))),
        {"backend": "kernels"},
    ),
    "two policies": (
        "tag_grid",
        cd.A2C(num_steps=8, hidden=(16,), normalize_obs=True),
        {"grid_length": 5},
    ),
}


@pytest.fixture(scope="module")
def pl():
    """Lightning and its adapter; they take seconds to import, so not while tests are collected."""
    names = SimpleNamespace(**vars(optional("lightning.pytorch")))
    names.loggers, names.callbacks = (
        optional("lightning.pytorch.loggers"),
        optional("lightning.pytorch.callbacks"),
    )
    from cupydrive.lightning import RLModule

    names.RLModule, names.Misconfigured = (
        RLModule,
        optional("lightning.fabric.utilities.exceptions").MisconfigurationException,
    )
    return names


@pytest.fixture
def trainer(pl, tmp_path, monkeypatch):
    """A function that makes a quiet Trainer, which saves only what a callback saves."""
    monkeypatch.setenv("MASTER_PORT", "0")  # any; Lightning writes here which one it takes
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)

    def make(callbacks=(), **options):
        saves = any(isinstance(callback, pl.callbacks.Checkpoint) for callback in callbacks)
        given = {
            "accelerator": "cpu",
            "default_root_dir": tmp_path,
            "enable_checkpointing": saves,
            **quiet,
            **options,
        }
        return pl.Trainer(callbacks=list(callbacks), **given)

    return make


def module(pl, kind="kernels", **options):
    env, settings, more = KINDS[kind]
    return pl.RLModule(
        env, settings, **{"num_envs": ENVS, "steps": STEPS, "seed": 3, **more, **options}
    )


def trained(kind="kernels", steps=STEPS, device="cpu"):
    env, settings, more = KINDS[kind]
    return cd.train(
        env, settings, num_envs=ENVS, steps=steps, seed=3, device=device, progress=False, **more
    )


def require_same(one, other):
    assert same(one, other)
    assert (one.step, rows(one)) == (other.step, rows(other))


# ---- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_an_iteration_of_train(kind, pl, trainer):
    made, fitting = module(pl, kind), trainer(max_epochs=-1)
    fitting.fit(made)
    require_same(made.run, trained(kind))
    assert (fitting.global_step, fitting.current_epoch) == (ITERATIONS, 1)
    seen = {name: value.item() for name, value in fitting.callback_metrics.items()}
    assert seen == made.run.metrics[-1] | {
        "charts/SPS": pytest.approx(made.run.metrics[-1]["charts/SPS"])
    }


@pytest.mark.full
@pytest.mark.gpu
def test_a_step_is_an_iteration_of_train_on_a_gpu(pl, trainer):
    made = module(pl)
    trainer(accelerator="gpu", devices=1, max_epochs=-1).fit(made)
    require_same(made.run, trained(device="cuda"))


def test_the_trainer_says_when_to_stop_and_either_goes_on(pl, trainer):
    made = module(pl)
    trainer(max_steps=3).fit(made)
    require_same(made.run, trained(steps=STEPS * 3 // ITERATIONS))
    trainer(max_epochs=2, limit_train_batches=1).fit(made)
    assert made.run.step == STEPS * 5 // ITERATIONS
    cd.train(made.run, progress=False, steps=ENVS * 8)
    rest = pl.RLModule(made.run)
    fitting = trainer(max_steps=100)
    fitting.fit(rest)
    require_same(rest.run, trained())
    assert fitting.global_step == 2
    more = pl.RLModule(made.run, steps=ENVS * 8)
    trainer(max_steps=100).fit(more)
    assert more.run.step == STEPS + ENVS * 8


@pytest.mark.full
def test_an_interval_that_the_trainer_cuts_short_is_logged(pl, trainer):
    """Of a run so long that a row is of several iterations."""
    made = pl.RLModule(
        "cartpole", cd.PPO(num_steps=1, num_minibatches=1, hidden=(4,)), num_envs=2, steps=2 * 5000
    )
    trainer(max_steps=13).fit(made)
    assert [row["charts/global_step"] for row in made.run.metrics] == [10, 20, 26]


# ---- loggers and callbacks -----------------------------------------------------------------------


def test_loggers_get_rows_and_what_the_run_is_made_of(pl, trainer, tmp_path):
    optional("tensorboard")
    loggers = [
        pl.loggers.CSVLogger(tmp_path / "csv"),
        pl.loggers.TensorBoardLogger(tmp_path / "board"),
    ]
    made = module(pl)
    trainer(max_epochs=1, logger=loggers, log_every_n_steps=1).fit(made)
    with open(Path(loggers[0].log_dir) / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == ITERATIONS
    for row, own in zip(rows, made.run.metrics, strict=True):
        assert {name: float(row[name]) for name in own} == own
    config = (Path(loggers[0].log_dir) / "hparams.yaml").read_text()
    assert "num_envs: 20" in config and "python/" not in config
    assert list(Path(loggers[1].log_dir).glob("events.out.tfevents.*"))


def test_callbacks_look_after_each_epoch(pl, trainer, tmp_path):
    best = pl.callbacks.ModelCheckpoint(
        tmp_path, monitor="losses/entropy", mode="min", save_top_k=1
    )
    enough = pl.callbacks.EarlyStopping("losses/entropy", stopping_threshold=2.0, mode="min")
    made, fitting = (
        module(pl),
        trainer(limit_train_batches=2, max_epochs=-1, callbacks=[best, enough]),
    )
    fitting.fit(made)
    assert fitting.global_step == 2 and enough.stopped_epoch == 0
    assert best.best_model_score.item() == made.run.metrics[-1]["losses/entropy"]
    patient = pl.callbacks.EarlyStopping("charts/episodic_return", strict=False, patience=100)
    made = module(pl)
    trainer(limit_train_batches=3, max_epochs=-1, callbacks=[patient]).fit(made)
    assert (
        made.run.step == STEPS
        and patient.best_score.item() <= made.run.metrics[-1]["charts/episodic_return"]
    )


def test_an_interrupt_ends_the_iteration_and_keeps_the_run(pl, trainer, tmp_path):
    class Interrupt(pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if batch_idx == 3:
                iterate = module.loop.iterate
                module.loop.iterate = lambda: (os.kill(os.getpid(), signal.SIGINT), iterate())

    kept = pl.callbacks.ModelCheckpoint(tmp_path, "kept", save_on_exception=True)
    made, before = module(pl), signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit):
            trainer(max_epochs=1, callbacks=[Interrupt(), kept]).fit(made)
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning ignores it from then on
    assert made.run.step == STEPS // 2 and len(made.run.metrics) == 4
    cd.train(made.run, progress=False)
    require_same(made.run, trained())
    again = module(pl)
    trainer(max_epochs=1).fit(again, ckpt_path=tmp_path / "kept.ckpt")
    require_same(again.run, trained())


# ---- checkpoints ---------------------------------------------------------------------------------


# It warns that what it saves is of after the step, as it should be.
@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("every", [{"every_n_epochs": 1}, {"every_n_train_steps": 1}])
def test_a_run_goes_on_from_any_checkpoint(kind, every, pl, trainer, tmp_path):
    """Saved at the end of an epoch or within one, and the last one, of a run that is done."""
    saving = pl.callbacks.ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, **every)
    whole = module(pl, kind)
    trainer(max_epochs=-1, limit_train_batches=3, callbacks=[saving]).fit(whole)
    files = sorted(tmp_path.glob("step=*.ckpt"))
    assert len(files) == {"every_n_epochs": 3, "every_n_train_steps": ITERATIONS}[next(iter(every))]
    for path in (files[0], files[1], files[-1]):
        torch.load(path, weights_only=True)
        made, fitting = module(pl, kind), trainer(max_epochs=-1, limit_train_batches=3)
        fitting.fit(made, ckpt_path=path, weights_only=True)
        require_same(made.run, whole.run)
        assert fitting.global_step == ITERATIONS


def test_a_checkpoint_is_loaded_without_a_trainer(pl, trainer, tmp_path):
    made, fitting = module(pl), trainer(max_steps=3)
    fitting.fit(made)
    fitting.save_checkpoint(tmp_path / "a.ckpt")
    env, settings, more = KINDS["kernels"]
    given = {"env": env, "algorithm": settings, "num_envs": ENVS, "steps": STEPS, "seed": 3, **more}
    loaded = pl.RLModule.load_from_checkpoint(tmp_path / "a.ckpt", weights_only=True, **given)
    require_same(loaded.run, made.run)


@pytest.mark.full
def test_a_checkpoint_of_something_else_changes_nothing(pl, trainer, tmp_path):
    first, fitting = module(pl), trainer(max_steps=2)
    fitting.fit(first)
    fitting.save_checkpoint(tmp_path / "good.ckpt")
    good = torch.load(tmp_path / "good.ckpt", weights_only=True)
    mine = good["cupydrive"]
    cases = [
        (module(pl), {**mine, "tensors": {}}, "does not fit this run"),
        (module(pl, seed=4), mine, "seed: got 3 in the checkpoint, expected 4"),
        (
            module(pl, "two policies"),
            mine,
            "env: got 'cartpole' in the checkpoint, expected 'tag_grid'",
        ),
    ]
    for made, kept, words in cases:
        trainer(max_steps=1).fit(made)
        before = made.run.snapshot()
        torch.save({**good, "cupydrive": kept}, tmp_path / "bad.ckpt")
        with pytest.raises(TrainingError, match=words):
            trainer(max_steps=3).fit(made, ckpt_path=tmp_path / "bad.ckpt")
        after = made.run.snapshot()
        assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


# ---- what cannot be ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gradient_clip_val": 0.5}, "gradient_clip_val=0.5"),  # Lightning's own error
        ({"accumulate_grad_batches": 4}, "accumulate_grad_batches=4"),
        ({"precision": "bf16-mixed"}, "precision='bf16-mixed'.*Leave it out"),
        ({"precision": "64-true"}, "precision='64-true'"),
        (
            {"strategy": "ddp_spawn", "devices": 2},
            "cannot be copied or pickled|Pass strategy='auto', or 'ddp'",
        ),
    ],
)
def test_a_trainer_that_would_be_ignored_is_refused(options, words, pl, trainer):
    run = trained(steps=ENVS * 8)
    made, before = pl.RLModule(run, steps=ENVS * 8), run.snapshot()
    with pytest.raises((ParameterError, pl.Misconfigured), match=words):
        trainer(**{"max_epochs": 3, **options}).fit(made)
    assert run.step == ENVS * 8 and all(torch.equal(run.snapshot()[k], before[k]) for k in before)


def test_wrong_arguments_are_named(pl, trainer):
    run = trained()
    with pytest.raises(ParameterError, match=r"has done its 1,280 env-steps\. Pass steps="):
        pl.RLModule(run)
    with pytest.raises(ParameterError, match=r"RLModule\(run, num_envs=4\).*Omit num_envs"):
        pl.RLModule(run, steps=10, num_envs=4)
    with pytest.raises(ParameterError, match="steps = 0"):
        pl.RLModule("cartpole", steps=0)
    for odd in (object(), None, 3):
        with pytest.raises(CupydriveError):
            pl.RLModule(odd)
    done = module(pl)
    trainer(max_epochs=1).fit(done)
    with pytest.raises(ParameterError, match="has done its 1,280 env-steps"):
        trainer(max_epochs=1).fit(done)
    with pytest.raises(
        ParameterError, match="RLModule generates its own training data: got train_dataloaders"
    ):
        trainer(max_epochs=1).fit(module(pl), [torch.zeros(3)] * 5)


def test_a_number_that_is_not_finite_ends_the_fit(pl, trainer):
    run = trained(steps=ENVS * 8)
    kept = run.batch.get_state()
    kept["state"]["x"][2] = float("nan")
    run.batch.set_state(kept)
    with pytest.raises(TrainingError, match="environment 2, agent 0"):
        trainer(max_epochs=1).fit(pl.RLModule(run, steps=STEPS))


def test_without_lightning_the_error_names_the_extra(monkeypatch):
    for name in [
        name for name in sys.modules if name.startswith("cupydrive.") and "lightning" in name
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install lightning, or the extra `lightning`"):
        import cupydrive.lightning  # noqa: F401


def test_the_adapter_alone_imports_lightning():
    files = [
        path
        for path in (ROOT / "cupydrive").rglob("*.py")
        if re.search(r"\b(from|import) lightning", path.read_text())
    ]
    assert files == [ROOT / "cupydrive" / "adapters" / "lightning.py"]


# ---- several processes ---------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_have_the_weights_of_one(tmp_path):
    """Lightning's own DDP, and a checkpoint in the middle; the second process is started by
    Lightning.
    """
    optional("lightning")
    program, own = (
        ROOT / "tests" / "adapters" / "lightning_ranks.py",
        {"GLOO_SOCKET_IFNAME": "lo", "CUPYDRIVE_THREADS": "1"},
    )
    done = run_python(program, 2, tmp_path, seconds=200, **own)
    assert done.returncode == 0, done.stderr
    said = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    from learner_weights import digest

    whole = cd.train("cartpole", SETTINGS, num_envs=ENVS, steps=STEPS, device="cpu", progress=False)
    for one in said:
        assert (
            one["weights"] == digest(whole)
            and one["envs"] == ENVS // 2
            and one["iterations"] == ITERATIONS
        )
        assert one["rows"] == said[0]["rows"] and len(one["rows"]) == ITERATIONS
        assert "devices=2" in one["refused"] and "RLModule('cartpole', ...)" in one["refused"]
