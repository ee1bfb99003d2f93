"""unmask.ray on a local cluster of two simulated nodes, one of which is killed while it answers."""

import asyncio
import concurrent.futures
import contextlib
import io
import json
import os
import pathlib
import re
import sys
import time
import urllib.error
import urllib.request

import pyarrow as pa
import pytest
import ray
from ray import cloudpickle, serve
from ray.cluster_utils import Cluster

import unmask
from unmask.ray.data import Predictor
from unmask.ray.serve import Ingress, app, engine

QUESTIONS = 1200
STORY = "Tell me a story with a bee called Wanda and a candle."
# Fewer threads than the two nodes have, so that neither starves.
ENGINE = {"model": "tiny-block", "threads": 1}
# The nodes can't import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def cluster():
    """A head without processors for work, and two nodes that work. The objects of the driver are on the head."""
    # The driver connects to the head before there are other nodes, so that no other one is its own.
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "resources": {"head": 1}})
    ray.init(address=made.address, log_to_driver=False)
    nodes = [made.add_node(num_cpus=1, resources={"worker": 1}) for _ in range(2)]
    made.wait_for_nodes()
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield made, nodes
    ray.shutdown()
    made.shutdown()


@ray.remote(num_cpus=0, resources={"head": 0.1})
class Log:
    """Which node began and ended which rows. It is on the head, which is not killed."""

    def __init__(self, victim=None):
        self.begun, self.ended, self.in_flight, self.victim = [], [], 0, victim

    def begin(self, node, rows):
        """Returns whether the node shall stop in the middle: the victim, after its first 100 answers."""
        self.begun += [(node, row) for row in rows]
        self.in_flight = max(self.in_flight, len(self.begun) - len(self.ended))
        return node == self.victim and len([entry for entry in self.ended if entry[0] == node]) >= 100

    def end(self, node, rows):
        self.ended += [(node, row) for row in rows]

    def read(self):
        return self.begun, self.ended

    def most(self):
        return self.in_flight


class Logged(Predictor):
    """A Predictor that tells the log about its batches."""

    def __init__(self, log, **options):
        super().__init__(**options)
        self._log, self._node = log, ray.get_runtime_context().get_node_id()

    async def __call__(self, batch: pa.Table) -> pa.Table:
        rows = batch.column("id").to_pylist()
        if await self._log.begin.remote(self._node, rows):
            await asyncio.sleep(3600)
        answered = await super().__call__(batch)
        await self._log.end.remote(self._node, rows)
        return answered


def question(i: int) -> str:
    return f"What is {i % 50} + {i // 50}?"


def row(i: int) -> dict:
    return {
        "id": i,
        "messages": [{"role": "user", "content": question(i)}],
        # Row 77 has an error of its own. The other rows have the temperature of the class.
        "sampling_params": {"max_tokens": 64, "temperature": 9.0 if i == 77 else None},
    }


def await_true(what, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.02)


def test_no_row_is_lost_or_doubled_when_a_node_is_killed(cluster):
    made, nodes = cluster
    killed = nodes[0].node_id
    log = Log.remote(killed)
    dataset = ray.data.from_items([row(i) for i in range(QUESTIONS)], override_num_blocks=60).map_batches(
        Logged,
        fn_constructor_args=(log,),
        fn_constructor_kwargs=dict(ENGINE, sampling_params={"temperature": 0}),
        batch_size=10,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=2),
        num_cpus=1,
    )

    def kill_in_the_middle():
        def the_victim_holds_rows():
            begun, ended = ray.get(log.read.remote())
            mine = [entry for entry in begun if entry[0] == killed]
            return len(mine) > len([entry for entry in ended if entry[0] == killed]) >= 100

        await_true(the_victim_holds_rows)
        made.remove_node(nodes[0], allow_graceful=False)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        killer = pool.submit(kill_in_the_middle)
        rows = list(dataset.iter_rows())
        killer.result()
    begun, ended = ray.get(log.read.remote())
    interrupted = set(begun) - set(ended)
    print(f"rows that the killed node had begun and not ended: {len([e for e in interrupted if e[0] == killed])}")
    print(f"rows that were begun: {len(begun)}, of {QUESTIONS}")
    assert any(node == killed for node, _ in interrupted) and len({node for node, _ in ended}) == 2
    assert sorted(row["id"] for row in rows) == list(range(QUESTIONS))

    (failed,) = [row for row in rows if row["error"] is not None]
    assert failed["id"] == 77 and failed["text"] is None and failed["token_ids"] is None
    assert failed["error"].endswith("is outside 0..2")
    with unmask.LLM(**ENGINE) as llm:
        wanted = llm.chat(
            [row["messages"] for row in rows], unmask.SamplingParams(temperature=0, max_tokens=64), use_tqdm=False
        )
    for answered, output in zip(rows, wanted):
        if answered["id"] != 77:
            assert answered["text"] == output.outputs[0].text, answered
            assert list(answered["token_ids"]) == output.outputs[0].token_ids


def test_batches_share_the_steps_of_an_engine(cluster):
    """ray.data calls __call__ again before it has returned."""
    log = Log.remote()
    dataset = ray.data.from_items([row(i) for i in range(100, 200)], override_num_blocks=1).map_batches(
        Logged,
        fn_constructor_args=(log,),
        fn_constructor_kwargs=ENGINE,
        batch_size=5,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=1),
        num_cpus=1,
    )
    rows = dataset.take_all()
    most = ray.get(log.most.remote())
    print(f"rows in flight: at most {most}")
    assert len(rows) == 100 and most > 5


def test_wrong_use_of_the_class_is_named(cluster):
    items = ray.data.from_items([{"prompt": "a", "text": "b"}])
    with pytest.raises(Exception, match='batch_format="pyarrow"'):
        items.map_batches(
            Predictor, fn_constructor_kwargs=ENGINE, compute=ray.data.ActorPoolStrategy(size=1)
        ).take_all()
    with pytest.raises(Exception, match="rename or drop it"):
        items.map_batches(
            Predictor, fn_constructor_kwargs=ENGINE, compute=ray.data.ActorPoolStrategy(size=1), batch_format="pyarrow"
        ).take_all()


def post(body) -> tuple:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{PORT}/", data), timeout=120) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


PORT = int(os.environ.get("UM_TEST_PORT", "18765"))


def ask(text: str, **more):
    return post({"messages": [{"role": "user", "content": text}], **more})


def running_engines() -> int:
    return serve.status().applications["default"].deployments["engine"].replica_states.get("RUNNING", 0)


@pytest.fixture
def served(cluster):
    # Proxy and ingress are on the head. On one host, the proxies of all nodes would have the same port.
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": PORT})
    ingress = Ingress.options(ray_actor_options={"num_cpus": 0, "resources": {"head": 0.1}})
    serve.run(ingress.bind(engine(dict(ENGINE, min_replicas=2, max_replicas=2, max_ongoing_requests=8))))
    await_true(lambda: running_engines() == 2)
    yield cluster
    serve.shutdown()


def test_serve_answers_whole_and_in_a_stream(served):
    status, reply = ask("What is 12 + 30?")
    answer = json.loads(reply)
    assert status == 200 and answer["text"] == "12 + 30 = 42." and answer["finish_reason"] == "stop"
    assert answer["error"] is None and answer["nfe"] > 0
    whole = json.loads(ask(STORY, sampling_params={"max_tokens": 160, "ignore_eos": True})[1])
    status, reply = ask(STORY, sampling_params={"max_tokens": 160, "ignore_eos": True}, stream=True)
    pieces = [json.loads(line) for line in reply.splitlines()]
    assert status == 200 and len(pieces) > 2
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    assert sum((piece["token_ids"] for piece in pieces), []) == whole["token_ids"]
    assert [piece["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]


def test_serve_names_wrong_requests(served):
    assert post(b"{")[0] == 400 and post([])[0] == 400
    for body, words in (
        ({}, "expected the key"),
        ({"prompt": "a", "max_tokens": 3}, "unknown keys ['max_tokens']"),
        ({"prompt": "a", "sampling_params": {"temperature": 9}}, "temperature: 9 is outside"),
        ({"prompt": [99999]}, "99999"),
    ):
        status, reply = post(body)
        assert status == 400 and words in json.loads(reply)["error"], reply
    assert ask("What is 12 + 30?")[0] == 200


def test_serve_answers_all_requests_when_a_node_is_killed(served):
    made, nodes = served
    replies: list = []

    def client(first: int) -> None:
        for i in range(first, 400, 16):
            replies.append((i, *ask(question(i))))

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        clients = [pool.submit(client, first) for first in range(16)]
        await_true(lambda: len(replies) > 60)
        at_death = len(replies)
        made.remove_node(nodes[1], allow_graceful=False)
        for one in clients:
            one.result()
    print(f"answers before the node was killed: {at_death}, after: {len(replies) - at_death}")
    assert at_death < 400 and sorted(i for i, _, _ in replies) == list(range(400))
    assert [(i, reply) for i, status, reply in replies if status != 200] == []


def test_serve_starts_engines_while_requests_queue(cluster):
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": PORT})
    serve.run(app(dict(ENGINE, max_replicas=2, target_ongoing_requests=1)))
    try:
        assert running_engines() == 1
        end = time.monotonic() + 120

        def client() -> None:
            while running_engines() < 2:
                assert time.monotonic() < end, "no second engine was started"
                assert ask(STORY, sampling_params={"max_tokens": 512, "ignore_eos": True})[0] == 200

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for one in [pool.submit(client) for _ in range(8)]:
                one.result()
    finally:
        serve.shutdown()


def test_blocks_of_the_page_print_what_it_shows(cluster):
    page = (pathlib.Path(__file__).resolve().parents[3] / "docs" / "cluster.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```\n", page, re.MULTILINE | re.DOTALL)
    assert blocks and len(blocks) == page.count("```python")
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, {"__name__": "page"})
        assert printed.getvalue() == expected
