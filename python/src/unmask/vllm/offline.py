"""vllm.LLM for models of unmask."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Union

import vllm

from ..prompts import find_model
from . import ENGINE_ARGS, Prompt, generate

__all__ = ["LLM"]


class LLM(vllm.LLM):
    """vllm.LLM with the worker of unmask. model may also name a bundled model. kwargs are those of vllm.LLM.

    Options of unmask are given as additional_config={"unmask": {"threads": 8}}.
    """

    def __init__(self, model: str, **kwargs: Any):
        super().__init__(find_model(model), **{**ENGINE_ARGS, **kwargs})

    def generate(  # type: ignore[override]
        self, prompts: Union[Prompt, Sequence[Prompt]], sampling_params: Any = None, use_tqdm: bool = True
    ) -> List[Any]:
        """Answers prompts as unmask.vllm.generate does. The worker draws no bar: use_tqdm has no effect."""
        return generate(self, prompts, sampling_params)

    def chat(  # type: ignore[override]
        self,
        messages: Sequence[Any],
        sampling_params: Any = None,
        use_tqdm: bool = True,
        chat_template: Optional[str] = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Optional[List[Mapping[str, Any]]] = None,
        chat_template_kwargs: Optional[Mapping[str, Any]] = None,
    ) -> List[Any]:
        """Answers a conversation, a list of {"role", "content"}, or a list of conversations."""
        conversations = [messages] if isinstance(messages[0], Mapping) else messages
        render = self.get_tokenizer().apply_chat_template
        prompts = [
            render(
                conversation,
                tools=tools,
                chat_template=chat_template,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                tokenize=False,
                **(chat_template_kwargs or {}),
            )
            for conversation in conversations
        ]
        return generate(self, prompts, sampling_params)
