"""Trains a run with Lightning in as many processes as are asked for; each writes what it found as
JSON. No tests of its own.

python tests/adapters/lightning_ranks.py DEVICES FOLDER
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from equal_runs import rows
from learner_weights import digest
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from test_lightning import SETTINGS, STEPS

import cupydrive as cd
from cupydrive.errors import ParameterError
from cupydrive.lightning import RLModule

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}


def main(devices, folder):
    """Train half of a run, save, and go on in a new module; a run that was made before the
    processes met is refused.
    """
    rank, said = int(os.environ.get("LOCAL_RANK", 0)), {}
    alone = cd.train("cartpole", SETTINGS, num_envs=20, steps=160, device="cpu", progress=False)
    options = {
        "accelerator": "cpu",
        "devices": devices,
        "strategy": "ddp",
        "default_root_dir": folder,
        **QUIET,
    }
    saving = ModelCheckpoint(dirpath=folder, filename="half")
    half = RLModule("cartpole", SETTINGS, num_envs=20, steps=STEPS)
    Trainer(max_epochs=1, limit_train_batches=3, callbacks=saving, **options).fit(half)
    whole = RLModule("cartpole", SETTINGS, num_envs=20, steps=STEPS)
    trainer = Trainer(max_epochs=-1, enable_checkpointing=False, **options)
    trainer.fit(whole, ckpt_path=Path(folder) / "half.ckpt")
    said |= {
        "envs": whole.run.shard.num_envs,
        "weights": digest(whole.run),
        "iterations": trainer.global_step,
    }
    said |= {"rows": rows(whole.run)}
    try:
        Trainer(max_epochs=1, enable_checkpointing=False, **options).fit(RLModule(alone, steps=160))
    except ParameterError as error:
        said["refused"] = str(error)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
