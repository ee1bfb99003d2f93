"""The tokenizer and the chat template of a model."""

from __future__ import annotations

import json
from typing import Any, List, Mapping, Optional, Sequence, Union

import numpy as np

from ._library import OpenModel, check, ffi, id_array, lib, new_error, octets, text

__all__ = ["Tokenizer"]

Messages = Sequence[Mapping[str, Any]]


class Tokenizer:
    """Converts between text and token ids. Several threads may use it at the same time.

    The names of its methods and parameters are those of tokenizers of Hugging Face.
    """

    def __init__(self, model: OpenModel):
        self._model = model

    def encode(self, prompt: str, add_special_tokens: bool = True) -> List[int]:
        """Returns the ids of a text. Text that spells a special token becomes that token."""
        return self.encode_array(prompt, add_special_tokens).tolist()

    def encode_array(self, prompt: str, add_special_tokens: bool = True, special_in_content: int = 0) -> np.ndarray:
        """Returns the ids of a text as int32. special_in_content is a UM_SPECIAL_* of the library."""
        encoded = prompt.encode()
        ids, n, err = ffi.new("int32_t **"), ffi.new("size_t *"), new_error()
        status = lib.um_model_encode_prompt(
            self._model.get(), encoded, len(encoded), special_in_content, add_special_tokens, ids, n, err
        )
        check(status, err)
        return _take_ids(ids, n)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Returns the text of ids."""
        ids = id_array(token_ids)
        out, n, err = ffi.new("char **"), ffi.new("size_t *"), new_error()
        pointer = ffi.from_buffer("int32_t[]", ids) if len(ids) else ffi.NULL
        check(lib.um_model_decode(self._model.get(), pointer, len(ids), not skip_special_tokens, out, n, err), err)
        return _take_text(out, n)

    def decode_token(self, token_id: int) -> str:
        """Returns the text of one token. Incomplete characters become U+FFFD."""
        model, n = self._model.get(), ffi.new("size_t *")
        pointer = lib.um_model_token_bytes(model, token_id, n)
        return octets(pointer, n[0]).decode("utf-8", "replace")

    def apply_chat_template(
        self,
        conversation: Messages,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        chat_template: Optional[str] = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **kwargs: Any,
    ) -> Union[str, List[int]]:
        """Renders a conversation to its ids, or with tokenize=False to text. kwargs are variables of the template."""
        rendered, ids = self.render(
            conversation, tools, chat_template, add_generation_prompt, continue_final_message, kwargs
        )
        return ids.tolist() if tokenize else rendered

    def render(
        self,
        conversation: Messages,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        chat_template: Optional[str] = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        kwargs: Optional[Mapping[str, Any]] = None,
    ):
        """Returns the text of a conversation and its ids as int32."""
        chat = ffi.new("um_chat_request *")
        lib.um_chat_init(chat)
        keep = [
            _json(conversation, "messages"),
            _json(tools, "tools"),
            _json(kwargs or None, "chat_template_kwargs"),
            ffi.NULL if chat_template is None else ffi.new("char[]", chat_template.encode()),
        ]
        chat.messages_json, chat.tools_json, chat.kwargs_json, chat.chat_template = keep
        chat.add_generation_prompt = add_generation_prompt
        chat.continue_final_message = continue_final_message
        out, size = ffi.new("char **"), ffi.new("size_t *")
        ids, n, err = ffi.new("int32_t **"), ffi.new("size_t *"), new_error()
        check(lib.um_model_render_chat(self._model.get(), chat, out, size, ids, n, err), err)
        return _take_text(out, size), _take_ids(ids, n)


def _json(value: Any, name: str):
    if value is None:
        return ffi.NULL
    try:
        return ffi.new("char[]", json.dumps(value).encode())
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def _take_ids(ids, n) -> np.ndarray:
    copied = np.frombuffer(octets(ids[0], 4 * n[0]), np.int32)
    lib.um_free(ids[0])
    return copied


def _take_text(out, n) -> str:
    copied = text(out[0], n[0])
    lib.um_free(out[0])
    return copied
