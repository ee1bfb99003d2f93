"""unmask inside vLLM: a worker that answers requests with the engine of this package.

vLLM calls register() in each of its processes: the entry point `unmask` of the group vllm.general_plugins. It adds a
format of config.json and a model class. `LLM` is vllm.LLM with the arguments that choose them and the worker:

    llm = unmask.vllm.LLM(model)
    outputs = llm.generate(prompts, vllm.SamplingParams(max_tokens=64))
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Union

from ..errors import InvalidValueError, UnsupportedError
from ..prompts import as_list, named, read_prompt

__all__ = ["ENGINE_ARGS", "LLM", "generate", "register"]

ENGINE_ARGS = {"config_format": "unmask", "worker_cls": "unmask.vllm.worker.Worker"}
MODEL_CLASS = "UnmaskModel"

# Fields of vLLM's SamplingParams that SamplingParams of this package has, too.
SHARED = (
    "n temperature top_p top_k min_p seed max_tokens min_tokens stop stop_token_ids bad_words allowed_token_ids "
    "logit_bias logprobs ignore_eos presence_penalty frequency_penalty repetition_penalty skip_special_tokens"
).split()
STRUCTURED = "json regex choice grammar json_object".split()
# Fields that concern how vLLM itself hands out the output.
IGNORED = "detokenize output_kind skip_clone output_text_buffer_length stream_interval flat_logprobs".split()

Prompt = Union[str, Sequence[int], Mapping[str, Any]]


def __getattr__(name: str) -> Any:
    """Imports LLM when it is used first: vLLM imports this module in all of its processes."""
    if name != "LLM":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from .offline import LLM

    return LLM


def register() -> None:
    """Makes the config format and the model class known to vLLM."""
    from vllm import ModelRegistry
    from vllm.transformers_utils.config import register_config_parser

    from .model import ConfigParser

    register_config_parser("unmask")(ConfigParser)
    ModelRegistry.register_model(MODEL_CLASS, "unmask.vllm.model:UnmaskModel")


def generate(llm: Any, prompts: Union[Prompt, Sequence[Prompt]], sampling_params: Any = None) -> List[Any]:
    """Answers prompts in the worker of a vllm.LLM, many at once. Returns objects of vLLM's class RequestOutput.

    prompts:         text, ids, {"prompt": text}, {"prompt_token_ids": ids}, or a list of them
    sampling_params: vllm.SamplingParams for all prompts, or one for each; its extra_args are options of unmask. None:
                     the defaults of the checkpoint

    A CompletionOutput also has nfe, the number of forward passes, and step_map, the pass that wrote each token.
    """
    wanted = []
    for i, prompt in enumerate(as_list(prompts)):
        with named(f"prompts[{i}]: "):
            wanted.append(_plain_prompt(prompt))
    many = isinstance(sampling_params, Sequence)
    params = [plain_params(one) for one in sampling_params] if many else plain_params(sampling_params)
    answered = llm.collective_rpc("run_diffusion_generation", args=(wanted, params))[0]
    return [_request_output(request) for request in answered]


def _plain_prompt(prompt: Any) -> Union[str, List[int]]:
    """Returns a prompt as text or ids."""
    if isinstance(prompt, Mapping):
        others = [name for name in prompt if name not in ("prompt", "prompt_token_ids") and prompt[name] is not None]
        if others:
            raise UnsupportedError(f"{others[0]} is not supported", "UM_EUNSUPPORTED", others[0])
        if prompt.get("prompt_token_ids") is None and isinstance(prompt.get("prompt"), str):
            return prompt["prompt"]
    return prompt if isinstance(prompt, str) else read_prompt(None, prompt)[1].tolist()


def plain_params(params: Any) -> Dict[str, Any]:
    """Converts vLLM's SamplingParams to parameters of SamplingParams of this package, as plain data."""
    if params is None:
        return {}
    defaults = type(params)()
    plain = {name: getattr(params, name) for name in SHARED if getattr(params, name) is not None}
    known = (*SHARED, *IGNORED, "structured_outputs", "extra_args")
    _refuse_others({name: getattr(params, name) for name in params.__struct_fields__}, known, defaults)
    if params.structured_outputs is not None:
        structured = vars(params.structured_outputs)
        _refuse_others(structured, STRUCTURED, None)
        plain["structured_outputs"] = {name: structured[name] for name in STRUCTURED}
    for name, value in (params.extra_args or {}).items():
        if name in plain:
            raise InvalidValueError(f"extra_args: {name} is a field of SamplingParams", "UM_EINVAL", name)
        plain[name] = value
    return plain


def _refuse_others(fields: Mapping[str, Any], known: Sequence[str], defaults: Any) -> None:
    """Raises an error if a field that is not known is set. Names that begin with _ are vLLM's own."""
    for name, value in fields.items():
        default = getattr(defaults, name, None)
        if name not in known and not name.startswith("_") and value != default and (value or default):
            raise UnsupportedError(f"{name}: {value!r} is not supported, only {default!r}", "UM_EUNSUPPORTED", name)


def _request_output(request: Mapping[str, Any]) -> Any:
    from vllm import RequestOutput

    return RequestOutput(
        request_id=request["request_id"],
        prompt=request["prompt"],
        prompt_token_ids=request["prompt_token_ids"],
        prompt_logprobs=None,
        outputs=[_completion_output(answer) for answer in request["outputs"]],
        finished=True,
        num_cached_tokens=request["num_cached_tokens"],
    )


def _completion_output(answer: Mapping[str, Any]) -> Any:
    from vllm import CompletionOutput
    from vllm.logprobs import Logprob

    logprobs = answer["logprobs"]
    output: Any = CompletionOutput(
        index=answer["index"],
        text=answer["text"],
        token_ids=answer["token_ids"],
        cumulative_logprob=answer["cumulative_logprob"],
        logprobs=logprobs and [{row[0]: Logprob(*row[1:]) for row in of_token} for of_token in logprobs],
        finish_reason=answer["finish_reason"],
        stop_reason=answer["stop_reason"],
    )
    output.nfe, output.step_map = answer["nfe"], answer["step_map"]
    return output
