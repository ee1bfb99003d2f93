"""Batch inference: a class for Dataset.map_batches of ray.data."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any, Dict, List, Mapping, Optional, Union

import pyarrow as pa

from .requests import Answer, Model

__all__ = ["Predictor"]

# The columns that Predictor adds.
COLUMNS = pa.schema(
    [
        ("text", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("finish_reason", pa.string()),
        ("nfe", pa.int32()),
        ("error", pa.string()),
    ]
)


class Predictor:
    """Answers the rows of a dataset. Each actor of ray.data has one engine.

    dataset.map_batches(
        Predictor,
        fn_constructor_kwargs={"model": "tiny-block", "threads": 8},
        compute=ray.data.ActorPoolStrategy(size=2),
        num_cpus=8,
        batch_size=64,
        batch_format="pyarrow",
    )

    model, options:  those of LLM
    sampling_params: parameters of SamplingParams that all rows share

    A row has the column `messages` (a conversation) or `prompt` (text or ids), and may have `sampling_params`: a
    struct, which has precedence. The result has the same rows in the same order, with the columns text, token_ids,
    finish_reason, nfe and error. A row whose request fails has the sentence in `error`, and null in the other four.

    __call__ is a coroutine, so ray.data calls it for several batches at once, and their requests share the engine's
    steps. A failure of the engine itself (DeviceError) is raised.
    """

    def __init__(
        self, model: Union[str, pathlib.Path], sampling_params: Optional[Mapping[str, Any]] = None, **options: Any
    ):
        self._model = Model(model, sampling_params, options)

    async def __call__(self, batch: pa.Table) -> pa.Table:
        """Answers the rows of a batch."""
        if not isinstance(batch, pa.Table):
            raise TypeError(f'expected map_batches(..., batch_format="pyarrow"); got a {type(batch).__name__}')
        taken = [name for name in COLUMNS.names if name in batch.column_names]
        if taken:
            raise ValueError(f"the dataset has the column {taken[0]!r}, which Predictor adds; rename or drop it")
        answers: List[Answer] = await asyncio.gather(*[self._model.answer(row) for row in batch.to_pylist()])
        columns: Dict[str, List[Any]] = {name: [answer[name] for answer in answers] for name in COLUMNS.names}
        for field in COLUMNS:
            batch = batch.append_column(field, pa.array(columns[field.name], field.type))
        return batch
