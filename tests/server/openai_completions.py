"""/v1/completions, and many requests at the same time."""

import asyncio
import concurrent.futures

import openai

from openai_harness import (chat, check, complete, COUNT, COUNT_PROMPT, COUNTED, joined, KEY, main, refused, run,
                            SUM, SUM_PROMPT, whole_sequence)

# ---- Completions -----------------------------------------------------------------------------------------------------


@check
def completions_continue_a_text():
    r = complete()
    assert r.object == "text_completion" and r.id.startswith("cmpl-")
    assert r.choices[0].text == "12 + 30 = 42." and r.choices[0].finish_reason == "stop"


@check
def completions_have_16_tokens_by_default():
    r = main.client().completions.create(model="tiny", prompt=COUNT_PROMPT)
    assert r.usage.completion_tokens == 16 and r.choices[0].finish_reason == "length"


@check
def completions_of_several_prompts_are_numbered():
    r = complete(prompt=[SUM_PROMPT, COUNT_PROMPT], n=2)
    assert [c.index for c in r.choices] == [0, 1, 2, 3]
    assert [c.text for c in r.choices] == ["12 + 30 = 42."] * 2 + [COUNTED] * 2


@check
def completions_of_ids_equal_those_of_their_text():
    ids = complete(extra_body={"return_token_ids": True}).choices[0].token_ids
    more = complete(prompt=ids, max_tokens=3)
    assert more.usage.prompt_tokens == len(ids)
    both = complete(prompt=[ids, ids], max_tokens=3)
    assert both.choices[0].text == both.choices[1].text == more.choices[0].text


@check
def completions_echo_the_prompt():
    assert complete(echo=True).choices[0].text == SUM_PROMPT + "12 + 30 = 42."
    text, _, _ = joined(complete(echo=True, stream=True))
    assert text == SUM_PROMPT + "12 + 30 = 42."


@check
def completions_logprobs_have_offsets():
    l = complete(logprobs=2).choices[0].logprobs
    assert "".join(l.tokens) == "12 + 30 = 42."
    assert l.text_offset == [sum(len(t) for t in l.tokens[:i]) for i in range(len(l.tokens))]
    assert len(l.token_logprobs) == len(l.top_logprobs) == len(l.tokens)
    assert all(l.tokens[i] in l.top_logprobs[i] for i in range(len(l.tokens)))


@check
def completions_logprobs_have_the_range_of_the_option():
    assert len(complete(logprobs=6, max_tokens=2, temperature=0).choices[0].logprobs.top_logprobs[0]) >= 6
    refused(openai.BadRequestError, lambda: complete(logprobs=65), "logprobs", "0..64")
    refused(openai.BadRequestError, lambda: complete(logprobs=-1), "logprobs", "0..64")


@check
def completions_logprobs_of_a_prompt_are_refused():
    for more in {}, {"max_tokens": 1, "temperature": 0}, {"stream": True}:  # lm-eval sends the second
        refused(openai.BadRequestError, lambda: complete(echo=True, logprobs=1, **more), "logprobs", "loglikelihood")


@check
def completions_streams_equal_the_whole():
    text, reason, chunks = joined(complete(prompt=COUNT_PROMPT, stream=True))
    assert text == COUNTED and reason == "stop" and all(c.object == "text_completion" for c in chunks)


@check
def completions_stream_several_prompts():
    chunks = list(complete(prompt=[SUM_PROMPT, COUNT_PROMPT], stream=True, stream_options={"include_usage": True}))
    assert joined(chunks, 0)[0] == "12 + 30 = 42." and joined(chunks, 1)[0] == COUNTED
    assert chunks[-1].usage.completion_tokens > 0


@check
def completions_fill_a_gap_on_models_with_full_attention():
    r = complete(whole_sequence, prompt="The cat ", suffix=" the mat.", max_tokens=8,
                 extra_body={"allowed_token_ids": list(range(65, 90))})
    assert 0 < r.usage.completion_tokens <= 8


@check
def completions_fill_no_gap_on_block_models():
    refused(openai.BadRequestError, lambda: complete(suffix=" end"), "suffix", "fills gaps")


@check
def completions_empty_prompts_are_refused():
    refused(openai.BadRequestError, lambda: complete(prompt=""), "prompt", "empty")
    refused(openai.BadRequestError, lambda: complete(prompt=[[1], []]), "prompt", "empty")
    refused(openai.BadRequestError, lambda: complete(prompt=[10 ** 6]), "prompt", "vocabulary")


@check
def completions_best_of_can_not_exceed_n():
    assert complete(best_of=1).choices[0].text == "12 + 30 = 42."
    assert len(complete(n=2, best_of=2).choices) == 2
    refused(openai.BadRequestError, lambda: complete(best_of=3), "best_of")
    refused(openai.BadRequestError, lambda: complete(n=2, best_of=3), "best_of")


# ---- Concurrent requests ---------------------------------------------------------------------------------------------


def client_async():
    return openai.AsyncOpenAI(base_url=main.url + "/v1", api_key=KEY, max_retries=0, timeout=60)


@check
def async_chat_answers():
    async def run():
        async with client_async() as c:
            return await c.chat.completions.create(model="tiny", messages=SUM)
    assert asyncio.run(run()).choices[0].message.content == "12 + 30 = 42."


@check
def async_streams_join():
    async def run():
        async with client_async() as c:
            stream = await c.chat.completions.create(model="tiny", messages=COUNT, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert asyncio.run(run()) == COUNTED


@check
def async_concurrent_completions_equal_single_ones():
    prompts = [f"<|im_start|>user\nWhat is {i} + {2 * i}?<|im_end|>\n<|im_start|>assistant\n" for i in range(3, 15)]
    hot = {"max_tokens": 40, "temperature": 1.0, "seed": 9}

    async def run():
        async with client_async() as c:
            return await asyncio.gather(*[c.completions.create(model="tiny", prompt=p, **hot) for p in prompts])
    together = [r.choices[0].text for r in asyncio.run(run())]
    assert together == [complete(prompt=p, **hot).choices[0].text for p in prompts]


@check
def concurrent_streams_equal_single_responses():
    asks = [{"messages": COUNT, "temperature": 1.0, "seed": s, "max_tokens": 48} for s in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        streamed = list(pool.map(lambda a: joined(chat(stream=True, **a))[0], asks))
    assert streamed == [chat(**a).choices[0].message.content for a in asks]
