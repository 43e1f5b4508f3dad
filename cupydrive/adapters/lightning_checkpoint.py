"""What an ``RLModule`` keeps in a checkpoint of Lightning's: what a run folder holds, as text and one tensor of bytes."""

import io
import json

import torch

from cupydrive import envs
from cupydrive.errors import TrainingError
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.formats import CONFIG, FormatError, Int, explained, read_json
from cupydrive.training.runfolder import FORMAT, pack_checkpoint, pack_metrics, unpack_checkpoint, unpack_metrics

KEY = "cupydrive"  # of it in the checkpoint
PARTS = {"began", "config", "metrics", "checkpoint"}
SAME = ("env", "tables", "params", "num_envs", "seed", "learner", "policies")  # of a configuration that goes on


def packed(run, began):
    """Return a run as text and one tensor of bytes: what its folder would hold. All processes must call it.

    Args:
        run: ``Run``.
        began: Env-steps done when this training began.
    """
    tensors = run.snapshot()
    if run.shard.ranks.rank > 0:  # the first writes
        return {}
    content = pack_checkpoint(run.spec.name, run.step, tensors).getbuffer()
    return {
        "began": began,
        "config": json.dumps(run.config()),
        "metrics": pack_metrics(run.metrics).decode(),
        "checkpoint": torch.frombuffer(bytearray(content), dtype=torch.uint8),
    }


def unpacked(run, kept):
    """Write what ``packed`` returned back into a run, in place, and return ``began``.

    Raises:
        TrainingError: If it is damaged, or of a run that is made of something else; nothing has changed then.
    """
    if kept is None:
        raise TrainingError("this checkpoint of Lightning's holds no run; pass one that an RLModule has saved")
    try:
        if type(kept) is not dict or set(kept) != PARTS:
            raise FormatError(f"it is {shown(kept)}")
        texts, content = [kept["config"], kept["metrics"]], kept["checkpoint"]
        if [type(text) for text in texts] != [str, str] or not is_bytes(content):
            raise FormatError("its parts are not two texts and a tensor of bytes")
        config = read_json(texts[0].encode(errors="replace"), CONFIG, FORMAT)
        rows = unpack_metrics(texts[1].encode(errors="replace"))
        saved, _ = unpack_checkpoint(io.BytesIO(content.cpu().numpy().tobytes()), len(content))
        Int(high=saved["step"]).check(kept["began"], "began")
    except FormatError as error:
        where = f"what is of cupydrive in this checkpoint of Lightning's, under {KEY!r},"
        raise TrainingError(explained(where, "run", error, "Pass another checkpoint")) from None
    require_same(plain(run.config()), config)
    envs.compare_origin("this checkpoint of Lightning's", run.spec, config.get("origin"))
    run.restore(saved["tensors"])
    run.step = saved["step"]
    run.metrics = [row for row in rows if row["charts/global_step"] <= run.step]
    return kept["began"]


def is_bytes(tensor):
    """Return whether it is an ordinary tensor of bytes."""
    plain = isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.device.type != "meta"
    return plain and tensor.dtype == torch.uint8 and tensor.dim() == 1


def require_same(mine, theirs):
    """Raise ``TrainingError`` if a configuration of a run is not that of a checkpoint."""
    for name in SAME:
        if mine.get(name) != theirs.get(name):
            raise TrainingError(
                f"this checkpoint of Lightning's is of a run whose settings differ: {name} is {shown(theirs.get(name))} there, "
                f"and {shown(mine.get(name))} here. Make the RLModule of what that run was made of, or begin without ckpt_path"
            )


def plain(config):
    """Return a configuration as it is read from JSON: lists where there were tuples."""
    return json.loads(json.dumps(config))
