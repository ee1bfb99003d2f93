"""The worker of vLLM that runs the engine of this package."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from ..errors import UnsupportedError
from ..llm import LLM
from ..outputs import CompletionOutput, RequestOutput
from ..params import SamplingParams, StructuredOutputsParams

__all__ = ["Worker"]


class Worker(WorkerBase):
    """Opens the model of a vLLM engine, and answers calls of run_diffusion_generation.

    Options of unmask are the mapping `unmask` of vLLM's additional_config: {"unmask": {"threads": 8}}.
    """

    llm: Optional[LLM] = None

    # ---- vLLM's start and end ----------------------------------------------------------------------------------------

    def init_device(self) -> None:
        self.device = torch.device("cpu")  # of vLLM's tensors; the engine has its own

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        if self.parallel_config.world_size > 1:
            raise UnsupportedError(
                "unmask runs on one worker; leave tensor_parallel_size and pipeline_parallel_size at 1"
            )
        options: Dict[str, Any] = {
            "device": "cpu" if self.device_config.device_type == "cpu" else "auto",
            "max_num_reqs": self.scheduler_config.max_num_seqs,
            "max_model_len": self.model_config.max_model_len,
            "seed": self.model_config.seed,
        }
        self.llm = LLM(self.model_config.model, **{**options, **_own_options(self.vllm_config.additional_config)})

    def get_supported_tasks(self) -> Tuple[str, ...]:
        return ("generate",)

    def get_kv_cache_spec(self) -> Dict[str, Any]:
        return {}  # the engine has its own KV cache

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        pass

    def compile_or_warm_up_model(self) -> CompilationTimes:
        return CompilationTimes(language_model=0.0, encoder=0.0)

    def execute_model(self, scheduler_output: Any) -> Any:
        raise UnsupportedError(
            "vLLM's scheduler can't run a diffusion model of unmask; call unmask.vllm.generate(llm, ...)"
        )

    def shutdown(self) -> None:
        if self.llm is not None:
            self.llm.close()

    # ---- The utility call --------------------------------------------------------------------------------------------

    def run_diffusion_generation(
        self, prompts: Sequence[Any], params: Union[Mapping[str, Any], Sequence[Mapping[str, Any]]]
    ) -> List[Dict[str, Any]]:
        """Answers prompts, many at once. Arguments and results are plain data, which vLLM can send between processes.

        prompts: text, ids, or dicts with prompt or prompt_token_ids
        params:  parameters of SamplingParams for all prompts, or for each
        """
        assert self.llm is not None, "load_model comes first"
        own: Any = _params(params) if isinstance(params, Mapping) else [_params(one) for one in params]
        return [_plain(output) for output in self.llm.generate(list(prompts), own, use_tqdm=False)]


def _own_options(additional_config: Any) -> Mapping[str, Any]:
    return (additional_config or {}).get("unmask", {}) if isinstance(additional_config, Mapping) else {}


def _params(plain: Mapping[str, Any]) -> SamplingParams:
    given = dict(plain)
    structured = given.pop("structured_outputs", None)
    return SamplingParams(structured_outputs=structured and StructuredOutputsParams(**structured), **given)


def _plain(output: RequestOutput) -> Dict[str, Any]:
    return {
        "request_id": output.request_id,
        "prompt": output.prompt,
        "prompt_token_ids": output.prompt_token_ids,
        "num_cached_tokens": output.num_cached_tokens,
        "outputs": [_plain_answer(answer) for answer in output.outputs],
    }


def _plain_answer(answer: CompletionOutput) -> Dict[str, Any]:
    logprobs = answer.logprobs
    return {
        "index": answer.index,
        "text": answer.text,
        "token_ids": answer.token_ids,
        "cumulative_logprob": answer.cumulative_logprob,
        "logprobs": logprobs and [[[id, *row] for id, row in of_token.items()] for of_token in logprobs],
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
        "nfe": answer.nfe,
        "step_map": answer.step_map.tolist(),
    }
