"""The model `unmask` of lm-evaluation-harness.

`python -m unmask.lm_eval` is the program lm_eval with this model:

    python -m unmask.lm_eval --model unmask --model_args pretrained=tiny-block --tasks ...

Arguments of the model are parameters of LLM, and those of `unmask score` for likelihoods: method, samples, batch,
check_greedy. Requests run many at once; --batch_size has no effect, max_num_reqs has.
"""

from __future__ import annotations

import logging
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from .errors import InvalidValueError
from .llm import LLM
from .outputs import ScoreOutput
from .params import SamplingParams

__all__ = ["UnmaskLM"]

logger = logging.getLogger(__name__)
Pair = Tuple[List[int], List[int]]  # a context and its continuation

SCORE_OPTIONS = ("method", "samples", "batch", "check_greedy")
# What the harness passes to every model.
OF_THE_HARNESS = ("batch_size", "max_batch_size", "device", "tokenizer", "trust_remote_code")


@register_model("unmask")
class UnmaskLM(LM):
    """A model in this process.

    pretrained:   the model of LLM
    max_gen_toks: tokens of an answer for tasks that name none
    backend:      the device of LLM; the harness fills in `device` itself, so that has no effect
    """

    def __init__(self, pretrained: str, max_gen_toks: Optional[int] = None, backend: str = "cpu", **options: Any):
        super().__init__()
        self._scoring = {name: options.pop(name) for name in SCORE_OPTIONS if name in options}
        options = {name: value for name, value in options.items() if name not in OF_THE_HARNESS}
        self._llm = LLM(pretrained, device=backend, **options)
        self._max_gen_toks = max_gen_toks
        self._max_len: int = self._llm.engine_info()["max_model_len"]
        self._n_shortened = 0
        self._name = pretrained

    # ---- Likelihoods -------------------------------------------------------------------------------------------------

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> List[Tuple[float, bool]]:
        """Returns the log-likelihood of each continuation, and whether greedy decoding would write it.

        The second value is False if it is unknown: with method=monte_carlo and without check_greedy.
        """
        pairs = [self._encode_pair(*request.args) for request in requests]
        pairs = [(self._shorten(context, len(continuation)), continuation) for context, continuation in pairs]
        return [(score.logprob, bool(score.is_greedy)) for score in self._score(pairs, disable_tqdm)]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> List[float]:
        """Returns the log-likelihood of whole texts, behind the token that begins a text.

        A text that is longer than max_model_len is scored in pieces of that length. The tokens of a piece see a token
        before it, and those of the last piece as many as fit.
        """
        encode = self._llm.get_tokenizer().encode
        texts = [list(self._pieces(encode(request.args[0], add_special_tokens=False))) for request in requests]
        scores = iter(self._score([pair for text in texts for pair in text], disable_tqdm))
        return [sum(next(scores).logprob for _ in text) for text in texts]

    def _pieces(self, text: List[int]) -> Iterator[Pair]:
        """Yields (context, piece) of a text."""
        for start in range(0, len(text), self._max_len - 1):
            end = min(start + self._max_len - 1, len(text))
            yield (text[max(0, end - self._max_len) : start] or self._first_token()), text[start:end]

    def _score(self, pairs: Sequence[Pair], disable_tqdm: bool) -> List[ScoreOutput]:
        contexts, continuations = [context for context, _ in pairs], [continuation for _, continuation in pairs]
        if not pairs:
            return []
        return self._llm.score(contexts, continuations, use_tqdm=not disable_tqdm, **self._scoring)

    def _shorten(self, context: List[int], n_answer: int) -> List[int]:
        """Returns the end of a context that fits with an answer, as models of the harness do."""
        room = max(1, self._max_len - n_answer)
        if len(context) <= room:
            return context
        if not self._n_shortened:
            logger.warning("a prompt has %d tokens; those before the last %d are left out", len(context), room)
        self._n_shortened += 1
        return context[-room:]

    def _first_token(self) -> List[int]:
        first = self._llm.model_info()["bos_id"]
        if first < 0:
            raise InvalidValueError("likelihoods of whole texts need a model with a token that begins a text (BOS)")
        return [first]

    def _encode_pair(self, context: str, continuation: str) -> Pair:
        """Encodes a context and its continuation as one text. Spaces between them belong to the continuation."""
        encode = self._llm.get_tokenizer().encode
        if not context:
            return self._first_token(), encode(continuation, add_special_tokens=False)
        bare = context.rstrip()
        continuation = context[len(bare) :] + continuation
        before = encode(bare)
        return before, encode(bare + continuation)[len(before) :]

    # ---- Answers -----------------------------------------------------------------------------------------------------

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> List[str]:
        """Returns the answers to prompts."""
        encode = self._llm.get_tokenizer().encode
        params = [self._params(dict(request.args[1])) for request in requests]
        lengths = [int(one.options.get("max_tokens", 1)) for one in params]
        prompts = [self._shorten(encode(request.args[0]), n) for request, n in zip(requests, lengths)]
        outputs = self._llm.generate(prompts, params, use_tqdm=not disable_tqdm)
        return [output.outputs[0].text for output in outputs]

    def _params(self, given: Dict[str, Any]) -> SamplingParams:
        """Converts the generation_kwargs of a task. Names that are no option are errors."""
        stop = given.pop("until", None) or []
        most = given.pop("max_gen_toks", self._max_gen_toks)
        temperature = given.pop("temperature", None)
        if not given.pop("do_sample", True):
            temperature = 0.0
        return SamplingParams(stop=stop, max_tokens=most, temperature=temperature, **given)

    # ---- Chat templates ----------------------------------------------------------------------------------------------

    def apply_chat_template(self, chat_history: List[Dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Renders a conversation with the checkpoint's template."""
        return self._llm.get_tokenizer().render(
            chat_history,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )[0]

    def chat_template(self, chat_template: Any = False) -> Optional[str]:
        """Returns the source of the template."""
        return self._llm.model_info()["chat_template"]

    @property
    def tokenizer_name(self) -> str:
        """A name that tells caches of prompts apart."""
        return self._name.replace("/", "__")


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
