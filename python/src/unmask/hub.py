"""Models of the Hugging Face hub."""

from __future__ import annotations

from typing import Any

from .errors import NotFoundError
from .llm import LLM

__all__ = ["from_pretrained"]

# What unmask reads of a repository. It never runs the Python code of one.
FILES = ["*.json", "*.jsonl", "*.txt", "*.model", "*.tiktoken", "*.jinja", "*.safetensors", "*.gguf", "README.md"]


def from_pretrained(name: str, *, download: bool = False, **options: Any) -> LLM:
    """Returns the LLM of a model in the local Hugging Face cache.

    name:     "org/name" of a model on the hub; any other model of LLM works too
    download: fetch a model that is not in the cache; needs the package huggingface_hub
    options:  parameters of LLM

    Errors: NotFoundError if the model is not in the cache, ImportError if huggingface_hub is missing, those of LLM, and
    those of huggingface_hub.
    """
    try:
        return LLM(name, **options)
    except NotFoundError:
        if not download:
            raise
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError("download=True needs the package huggingface_hub: pip install huggingface_hub") from error
    return LLM(huggingface_hub.snapshot_download(name, allow_patterns=FILES), **options)
