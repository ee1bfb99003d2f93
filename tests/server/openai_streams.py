"""Streams of /v1/chat/completions, and log-probabilities of all streams."""

import json

import openai

from openai_harness import (chat, check, complete, COUNT, COUNT_PROMPT, COUNTED, events, FACTS, GRADUAL, joined, main,
                            processes, refused, SUM, TOOLS, whole_sequence)

# ---- Chat, streamed --------------------------------------------------------------------------------------------------


@check
def a_stream_equals_the_whole():
    text, reason, chunks = joined(chat(messages=COUNT, stream=True))
    assert text == COUNTED and reason == "stop"
    assert len({c.id for c in chunks}) == 1 and all(c.object == "chat.completion.chunk" for c in chunks)


@check
def a_stream_begins_with_the_role():
    first = next(iter(chat(stream=True)))
    assert first.choices[0].delta.role == "assistant" and first.choices[0].delta.content == ""
    assert first.choices[0].finish_reason is None


@check
def a_stream_ends_with_done():
    got = events(main, "/v1/chat/completions", {"messages": SUM, "stream": True})
    assert got[-1] == "[DONE]" and got.count("[DONE]") == 1
    assert json.loads(got[-2])["choices"][0]["finish_reason"] == "stop"


@check
def a_stream_has_usage_on_request():
    _, _, chunks = joined(chat(stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens > 0
    assert all(c.usage is None for c in chunks[:-1])
    _, _, chunks = joined(chat(stream=True))
    assert all(c.usage is None for c in chunks)


@check
def a_stream_has_continuous_usage_on_request():
    both = {"include_usage": True, "continuous_usage_stats": True}
    _, _, chunks = joined(chat(messages=COUNT, stream=True, stream_options=both, extra_body={"block_size": 8}))
    counts = [c.usage.completion_tokens for c in chunks]
    assert counts == sorted(counts) and counts[-1] == chat(messages=COUNT).usage.completion_tokens


@check
def stream_options_need_a_stream():
    refused(openai.BadRequestError, lambda: chat(stream_options={"include_usage": True}), "stream_options")


@check
def a_stream_separates_n_answers():
    hot = {"messages": COUNT, "temperature": 1.2, "seed": 3, "n": 3, "max_tokens": 40}
    whole, chunks = chat(**hot), list(chat(stream=True, **hot))
    for i in range(3):
        text, reason, _ = joined(chunks, i)
        assert text == whole.choices[i].message.content and reason == whole.choices[i].finish_reason


@check
def a_stream_at_a_high_temperature_equals_the_whole():
    for seed in range(6):
        hot = {"messages": COUNT, "temperature": 1.6, "seed": seed, "max_tokens": 60, "stop": ["2", "an"]}
        text, reason, _ = joined(chat(stream=True, **hot))
        want = chat(**hot).choices[0]
        assert (text, reason) == (want.message.content, want.finish_reason)


# ---- Log-probabilities -----------------------------------------------------------------------------------------------

SCORED = {"messages": COUNT, "logprobs": True, "top_logprobs": 2, "max_tokens": 60}
VARIANTS = [
    {"extra_body": {"block_size": 8}},
    {"max_tokens": 19, "extra_body": {"block_size": 4}},
    {"stop": ["1"], "extra_body": {"block_size": 4}},
    {"stop": [", 12"], "extra_body": {"block_size": 4, "include_stop_str_in_output": True}},
    {"n": 3, "temperature": 1.4, "seed": 5, "stop": ["an", "9"], "extra_body": {"block_size": 4}},
    *({"temperature": 2, "seed": s, "extra_body": {"ignore_eos": True, "block_size": 4}} for s in range(4)),
]


def of_choice(chunks, index):
    return [c.choices[0] for c in chunks if c.choices and c.choices[0].index == index]


def check_tokens_have_text(parts, whole):
    """Fails if a chunk scores a token whose text has not arrived yet. A stop string can cut the last token."""
    text, bytes_so_far, n = "", b"", 0
    for part in parts:
        text += part.delta.content or ""
        for token in part.logprobs.content if part.logprobs else []:
            n += 1
            if n < len(whole) and not (token.token.startswith("<|") and token.token.endswith("|>")):
                bytes_so_far += bytes(token.bytes)
        assert text.startswith(bytes_so_far.decode(errors="replace").rstrip("\ufffd")), (text, bytes_so_far)


@check
def a_streams_chunks_have_the_logprobs_of_their_text():
    for server in main, processes:
        for variant in VARIANTS:
            ask = {**SCORED, **variant}
            whole, chunks = chat(server, **ask), list(chat(server, stream=True, **ask))
            for i in range(ask.get("n", 1)):
                want, parts = whole.choices[i].logprobs.content, of_choice(chunks, i)
                scored = [p.logprobs.content for p in parts if p.logprobs]
                assert [t.model_dump() for s in scored for t in s] == [t.model_dump() for t in want], variant
                assert "".join(p.delta.content or "" for p in parts) == whole.choices[i].message.content
                check_tokens_have_text(parts, want)
                assert all(scored) and parts[0].logprobs is None and (len(scored) > 1 or len(want) < 8)
                assert all(len(t.top_logprobs) == 2 for s in scored for t in s)


@check
def a_streams_chunks_have_no_logprobs_unless_asked_for():
    assert all(c.choices[0].logprobs is None for c in chat(messages=COUNT, stream=True))
    alone = [t for c in chat(messages=COUNT, stream=True, logprobs=True) if c.choices[0].logprobs
             for t in c.choices[0].logprobs.content]
    assert alone and all(t.top_logprobs == [] for t in alone)


@check
def a_streams_logprobs_arrive_with_the_pieces_of_a_call():
    ask = {"messages": FACTS, "tools": TOOLS, "tool_choice": "required", "logprobs": True, "max_tokens": 64,
           "extra_body": {"block_size": 4}}
    chunks = [c.choices[0].logprobs.content for c in chat(stream=True, **ask) if c.choices[0].logprobs]
    got = [t for chunk in chunks for t in chunk]
    assert len(chunks) > 2 and got == chat(**ask).choices[0].logprobs.content


@check
def a_completions_stream_has_the_logprobs_of_its_text():
    lists = "tokens", "token_logprobs", "top_logprobs", "text_offset"
    for server in main, processes:
        for variant in VARIANTS:
            ask = {"prompt": COUNT_PROMPT, "logprobs": 2, **variant}
            whole, chunks = complete(server, **ask), list(complete(server, stream=True, **ask))
            for i in range(ask.get("n", 1)):
                want, parts = whole.choices[i], of_choice(chunks, i)
                scored = [p.logprobs for p in parts if p.logprobs]
                for name in lists:
                    got = [v for l in scored for v in getattr(l, name)]
                    assert got == getattr(want.logprobs, name), (name, variant)
                text = ""
                for part in parts: # a token begins in text of its chunk or of an earlier one
                    text += part.text
                    assert not part.logprobs or max(part.logprobs.text_offset) <= len(text)
                assert text == want.text and parts[-1].logprobs is None


@check
def a_stream_of_snapshots_ends_with_logprobs():
    ask = {"messages": COUNT, "stream_mode": "denoise", "logprobs": True, **GRADUAL}
    final = json.loads(events(whole_sequence, "/v1/chat/completions", ask)[-2])
    assert "".join(t["token"] for t in final["logprobs"]["content"]) == COUNTED
    ask = {"prompt": COUNT_PROMPT, "stream_mode": "denoise", "logprobs": 1, **GRADUAL}
    final = json.loads(events(whole_sequence, "/v1/completions", ask)[-2])
    assert "".join(final["logprobs"]["tokens"]) == final["text"]


# ---- Snapshots and ends ----------------------------------------------------------------------------------------------


@check
def a_streams_token_ids_are_those_of_the_whole():
    ask = {"messages": COUNT, "extra_body": {"return_token_ids": True, "block_size": 8}}
    got = [i for c in chat(stream=True, **ask) for i in getattr(c.choices[0], "token_ids", None) or []]
    assert got == chat(**ask).choices[0].token_ids


@check
def a_stream_of_snapshots_ends_with_the_answer():
    got = events(whole_sequence, "/v1/chat/completions", {"messages": COUNT, "stream_mode": "denoise", **GRADUAL})
    snapshots = [json.loads(e) for e in got[:-2]]
    final = json.loads(got[-2])
    assert snapshots and got[-1] == "[DONE]"
    for s in snapshots:
        assert s["object"] == final["object"] == "diffulex.chat.completion.denoise" and s["event"] == "buffer_snapshot"
        assert len(s["token_ids"]) == len(s["pass"]) == len(s["confidence"]) == len(s["tokens"])
        assert [s["token_ids"][i] for i in s["mask_positions"]] == [s["mask_token_id"]] * len(s["mask_positions"])
        assert s["absolute_end"] - s["absolute_start"] == len(s["token_ids"])
        assert all(s["confidence"][i] is None and s["tokens"][i] == "" for i in s["mask_positions"])
    assert any(s["mask_positions"] for s in snapshots)
    assert final["event"] == "final" and final["text"] == COUNTED and final["finish_reason"] == "stop"
    assert final["finished"] and final["full_text"] == COUNTED and len(final["full_token_ids"]) > len(final["token_ids"])


@check
def a_mixed_stream_has_provisional_text():
    got = events(whole_sequence, "/v1/chat/completions", {"messages": COUNT, "stream_mode": "mixed", **GRADUAL})
    chunks = [json.loads(e) for e in got[:-1]]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == COUNTED
    provisional = [c["choices"][0]["dllm"] for c in chunks if "dllm" in c["choices"][0]]
    assert provisional and any(p["mask_count"] > 0 for p in provisional)


@check
def the_server_survives_a_disconnected_stream():
    stream = chat(messages=COUNT, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    assert chat().choices[0].message.content == "12 + 30 = 42."


@check
def a_refused_stream_has_an_error_status():
    refused(openai.BadRequestError, lambda: chat(stream=True, extra_body={"decoding_strategy": "full"}))
    refused(openai.BadRequestError, lambda: chat(stream=True, max_tokens=0), "max_tokens")
