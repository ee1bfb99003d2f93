"""What vLLM reads of a model before its worker opens it."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, Optional, Tuple, Union

from torch import nn
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig
from vllm.transformers_utils.config_parser_base import ConfigParserBase

from . import MODEL_CLASS


class ConfigParser(ConfigParserBase):
    """Reads config.json as plain values: transformers knows few of these models without the checkpoint's own code."""

    def parse(
        self,
        model: Union[str, pathlib.Path],
        trust_remote_code: bool,
        revision: Optional[str] = None,
        code_revision: Optional[str] = None,
        **kwargs: Any,
    ) -> Tuple[Dict[str, Any], PretrainedConfig]:
        path = pathlib.Path(model) / "config.json"
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields.pop("auto_map", None)
        fields["architectures"] = [MODEL_CLASS]
        _introduce(fields.get("model_type", ""))
        return fields, PretrainedConfig.from_dict(fields)


def _introduce(model_type: str) -> None:
    """Makes AutoConfig read models of a type that transformers does not know. vLLM calls it for other files."""
    if model_type and model_type not in CONFIG_MAPPING:
        AutoConfig.register(model_type, type("Config", (PretrainedConfig,), {"model_type": model_type}))


class UnmaskModel(nn.Module):
    """Tells vLLM that the model writes text and needs no KV cache of vLLM. It is never created."""

    is_attention_free = True

    def __init__(self, *, vllm_config: Any, prefix: str = ""):
        raise NotImplementedError('this model runs with worker_cls="unmask.vllm.worker.Worker"')

    def embed_input_ids(self, input_ids: Any) -> Any:
        raise NotImplementedError

    def forward(self, input_ids: Any, positions: Any) -> Any:
        raise NotImplementedError

    def compute_logits(self, hidden_states: Any) -> Any:
        raise NotImplementedError
