"""Takes the rows of a minibatch from several tensors in one launch."""

import torch

from cupydrive.codegen.source import assemble_file, column_words
from cupydrive.executors.interop import make_call


class RowGather:
    """Callable: ``gather(columns, index)`` returns ``{name: column[index]}``; bool masks in launches of their own.

    Args:
        executor: Where the tensors are.
    """

    def __init__(self, executor):
        self.executor, self._programs = executor, {}

    def __call__(self, columns, index):
        """Return the rows that ``index`` (M,) int64 names, of each (B, ...) tensor of ``columns``."""
        masks = {name: column.index_select(0, index) for name, column in columns.items() if column.dtype == torch.bool}
        columns = {name: column for name, column in columns.items() if name not in masks}
        words = tuple(column[0].numel() * column.element_size() // 4 for column in columns.values())
        if words not in self._programs:
            team = min(self.executor.max_team, 32, 1 << max(0, (max(words) // 4 - 1)).bit_length())
            unit = assemble_file("train/gather", (("COLUMNS", len(words)),), column_words(words), team)
            self._programs[words] = self.executor.build(unit)
        taken = {name: column.new_empty((len(index), *column.shape[1:])) for name, column in columns.items()}
        pointers = {"index": index, **{f"from.{name}": column for name, column in columns.items()}}
        pointers |= {f"to.{name}": column for name, column in taken.items()}
        call = make_call({"rows": len(index)}, pointers)
        self._programs[words].launch("gather", call, len(index), len(index) * sum(words))
        return taken | masks
