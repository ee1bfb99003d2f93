"""Hostile clients against the real server, with figures: UNMASK=build/unmask python3 tests/soak/hostile.py [NAME...]

Each attack prints its figures and checks them. No check depends on the speed of the machine: waits are printed, and
decided by what else has ended meanwhile. Options that an older program lacks are left out, so that UNMASK=OLDER prints
the figures of that program.
"""

import collections
import gzip
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

UNMASK = os.path.abspath(os.environ.get("UNMASK", "build/unmask"))
MODEL = os.path.abspath("models/tiny-block")
SMALL = {"prompt": "What is 2 plus 3?", "max_tokens": 4}
work = tempfile.mkdtemp()
known = subprocess.run([UNMASK, "serve", "--help"], capture_output=True, text=True, check=True).stdout
attacks = []


def attack(f):
    attacks.append(f)
    return f


def figure(name, value):
    print(f"  {name}: {value}", flush=True)


# ---- Servers and requests --------------------------------------------------------------------------------------------


class Server:
    def __init__(self, *options):
        """Starts a server. Options are pairs of a name and a value."""
        names = [f for n, v in options if f"--{n} " in known for f in ("--" + n, v)]
        self.log = open(os.path.join(work, "log"), "w+")
        self.process = subprocess.Popen([UNMASK, "serve", "--model", MODEL, "--port", "0", "--in-process",
                                         "--no-access-log", *names], stderr=self.log, cwd=work)
        deadline = time.time() + 60
        while "unmask: ready" not in self.text():
            if time.time() > deadline or self.process.poll() is not None:
                raise Exception("the server did not start: " + self.text())
            time.sleep(0.05)
        self.port = int(re.search(r"listening at http://127.0.0.1:(\d+)", self.text())[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL if sys.exc_info()[0] else signal.SIGTERM)
        self.process.wait(60)

    def text(self):
        return open(self.log.name).read()

    def ask(self, path, body=None, method=None, address="127.0.0.1", timeout=300, **headers):
        """Returns the status, the body and the headers of a response; status 0 if the server closed the connection."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout, source_address=(address, 0))
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        names = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        try:
            c.request(method or ("GET" if body is None else "POST"), path, data, names)
            r = c.getresponse()
            return r.status, r.read(), r.headers
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
            return 0, b"", {}
        finally:
            c.close()

    def memory(self, name):
        """Returns VmRSS or VmHWM in MB."""
        return int(re.search(rf"{name}:\s+(\d+)", open(f"/proc/{self.process.pid}/status").read())[1]) / 1000

    def metric(self, name):
        return sum(float(line.split()[-1]) for line in self.ask("/metrics")[1].decode().split("\n")
                   if re.match(name + r"[ {]", line))


def together(*calls):
    """Calls the functions at the same time and returns their results."""
    results = [None] * len(calls)

    def run(i):
        results[i] = calls[i]()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def statuses(responses):
    return dict(sorted(collections.Counter(r[0] for r in responses).items()))


class Probe(threading.Thread):
    """Sends a small request again and again until it is stopped. `waits` has the seconds of each."""

    def __init__(self, server, path, body=None):
        super().__init__()
        self.server, self.path, self.body = server, path, body
        self.waits, self.statuses, self.going = [], [], True
        self.start()

    def run(self):
        while self.going:
            begin = time.time()
            self.statuses.append(self.server.ask(self.path, self.body)[0])
            self.waits.append(time.time() - begin)
            time.sleep(0.01)

    def stop(self):
        self.going = False
        self.join()
        figure(f"{self.path} meanwhile", f"{len(self.waits)} requests, worst wait {max(self.waits):.2f} s")
        return set(self.statuses)


# ---- The attacks -----------------------------------------------------------------------------------------------------


@attack
def memory_of_bodies():
    """Four bodies at once, each of 5 million objects in 15 MB, then a stop string of 5 MB and a compressed bomb."""
    objects = b",".join([b"{}"] * 5_000_000)
    with Server() as s:
        assert s.ask("/v1/completions", SMALL)[0] == 200
        before = s.memory("VmRSS")
        for member in b"x", b"messages":
            open(f"/proc/{s.process.pid}/clear_refs", "w").write("5")  # the peak begins anew
            body = b'{"%s": [' % member + objects + b"]}"
            health, small = Probe(s, "/health"), Probe(s, "/v1/completions", SMALL)
            begin = time.time()
            answers = together(*[lambda: s.ask("/v1/chat/completions", body)] * 4)
            figure(f'4 bodies of {len(body) / 1e6:.1f} MB, "{member.decode()}"', f"{statuses(answers)} in {time.time() - begin:.1f} s")
            figure("resident memory before, peak", f"{before:.0f}, {s.memory('VmHWM'):.0f} MB")
            assert health.stop() | small.stop() == {200}
            assert set(statuses(answers)) <= {413, 503}, answers[0][1]
            # 4 bodies of 15 MB, 256 MiB of parsed bodies, and as much again for what the parser and malloc keep.
            assert s.memory("VmHWM") - before < 4 * 15 + 2 * 268
        status = s.ask("/v1/completions", {**SMALL, "stop": "x" * 5_000_000})[0]
        figure("a stop string of 5 MB", status)
        assert status == 400
        status = s.ask("/v1/completions", gzip.compress(b" " * 15_000_000), Content_Encoding="gzip")[0]
        figure("15 MB in a compressed body of 15 kB", status)
        assert status in (413, 415)
        deadline = time.time() + 60
        while s.memory("VmRSS") - before > 20 and time.time() < deadline:
            time.sleep(0.1)
        figure("resident memory after", f"{s.memory('VmRSS'):.0f} MB")
        assert s.memory("VmRSS") - before <= 20


@attack
def pages_of_other_sites():
    """Requests as pages of other sites send them, and names that are not the server's. tests/web/sites.sh has the browser."""
    paths = "/flush_cache /start_profile /v1/files /call/echo /abort_request /v1/chat/completions /generate".split()
    with Server(("state-dir", os.path.join(work, "sites"))) as s:
        assert s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is 12 + 30?"}]})[0] == 200
        tokens = s.metric("unmask_generation_tokens_total")
        assert tokens > 0
        through = []
        for path in paths:
            for origin in "http://evil.test", "null", f"http://127.0.0.1:{s.port + 1}", f"http://127.0.0.1:{s.port}.evil.test":
                for method in "POST", "GET", "DELETE":
                    for kind in "application/json", "text/plain":
                        r = s.ask(path, SMALL, method, Origin=origin, Content_Type=kind, Host=f"127.0.0.1:{s.port}")
                        through += [(method, path, origin, r[0])] if r[0] != 403 else []
        figure("requests with a foreign origin that were not refused with 403", f"{len(through)} of {len(paths) * 24}")
        figure("tokens that they cost", s.metric("unmask_generation_tokens_total") - tokens)
        names = "evil.test", "evil.test:80", f"127.0.0.1.evil.test:{s.port}", "localhost.evil.test", "2130706433.nip"
        answers = [s.ask(path, SMALL, Host=name) for path in paths for name in names]
        figure("requests under foreign names", statuses(answers))
        changing = [s.ask(path)[0] for path in ("/flush_cache", "/start_profile", "/abort_request")]
        figure("GET of paths that change something", changing)
        assert not through and set(statuses(answers)) == {421} and set(changing) == {405}
        assert s.metric("unmask_generation_tokens_total") == tokens


@attack
def limits_of_keys():
    """Floods of keys with limits, and a key that tries what only an admin may do."""
    path = os.path.join(work, "keys")
    settings = {"often": "requests_per_minute=5", "much": "tokens_per_minute=200", "wide": "max_concurrent=2",
                "long": "max_answer_tokens=16", "plain": "", "ops": "admin"}
    with open(path, "w") as f:
        for name, more in settings.items():
            f.write(f"{name} {hashlib.sha256(name.encode()).hexdigest()} {more}\n")
    with Server(("api-key-file", path), ("state-dir", os.path.join(work, "tenants"))) as s:
        def flood(key, body, n=60):
            return together(*[lambda: s.ask("/v1/completions", body, x_api_key=key)] * n)
        slow = {"prompt": "Count.", "max_tokens": 400, "ignore_eos": True, "accept_threshold": 1}
        often, much, wide = flood("often", SMALL), flood("much", SMALL), flood("wide", slow, 20)
        figure("60 requests at once with requests_per_minute=5", statuses(often))
        figure("60 requests at once with tokens_per_minute=200", statuses(much))
        figure("20 long requests at once with max_concurrent=2", statuses(wide))
        for answers in often, much, wide:
            assert set(statuses(answers)) == {200, 429}
            assert all(r[2]["Retry-After"] for r in answers if r[0] == 429)
        assert 5 <= statuses(often)[200] <= 6 and statuses(much)[200] * 8 <= 220
        figure("n x max_tokens of 400 with max_answer_tokens=16", s.ask("/v1/completions", slow, x_api_key="long")[0])
        assert s.ask("/v1/completions", slow, x_api_key="long")[0] == 403
        admin = [s.ask(p, {}, x_api_key="plain")[0] for p in ("/flush_cache", "/start_profile", "/call/echo")]
        figure("paths of admins for another key", admin)
        file = json.loads(s.ask("/v1/files?purpose=batch", b"{}\n", x_api_key="ops", Content_Type="application/jsonl")[1])["id"]
        theirs = [s.ask(f"/v1/files/{file}{end}", None, m, x_api_key="plain")[0] for m, end in (("GET", ""), ("GET", "/content"), ("DELETE", ""))]
        figure("a file of another key", theirs)
        guesses = [s.ask("/v1/models", x_api_key=hashlib.sha256(b"%d" % i).hexdigest())[0] for i in range(1000)]
        figure("1000 guessed keys", dict(collections.Counter(guesses)))
        assert set(admin) == {403} and set(theirs) == {404} and set(guesses) == {401}


def flooded(admission):
    """Prints the waits of a small request beside eight floods. Returns the most other answers that ended in one wait."""
    large = {"prompt": "What is 1 plus 1?", "n": 16, "max_tokens": 64, "ignore_eos": True}
    with Server(("max-num-reqs", "8"), ("admission", admission)) as s:
        going = [True]

        def flood(i):
            # One of them also claims to be the most urgent.
            body = {**large, "priority": -2147483648} if i == 0 else large
            while going[0]:
                if s.ask("/v1/completions", body, address=f"127.0.0.{2 + i % 8}")[0] == 403:
                    body = large
        floods = [threading.Thread(target=flood, args=(i,)) for i in range(16)]
        for t in floods:
            t.start()
        time.sleep(2)
        waits, ended = [], []
        until = time.time() + 20
        while time.time() < until:
            count, begin = s.metric("unmask_e2e_request_latency_seconds_count"), time.time()
            assert s.ask("/v1/completions", SMALL)[0] == 200
            waits.append(time.time() - begin)
            ended.append(int(s.metric("unmask_e2e_request_latency_seconds_count") - count))
        going[0] = False
        for t in floods:
            t.join()
        waits.sort()
        figure(f"small request beside 8 floods, admission {admission}", f"{len(waits)} requests, wait p50 {waits[len(waits) // 2]:.2f} s, "
               f"p99 {waits[int(len(waits) * 0.99)]:.2f} s, worst {waits[-1]:.2f} s; at most {max(ended)} answers ended meanwhile")
        return max(ended)


@attack
def floods_of_tenants():
    """Eight addresses ask for 16 answers of 64 tokens again and again, over two connections each."""
    flooded("arrival")
    # Eight answers run. In turns the small request is next, and has 8 passes at most; in order, 256 answers are before it.
    assert flooded("fair") <= 64


@attack
def slow_clients():
    """Connections that send a byte now and then, in the head or in the body, more than the server takes."""
    n = 400
    with Server(("max-connections", "200"), ("head-timeout", "5"), ("body-timeout", "5")) as s:
        before, begin = s.memory("VmRSS"), time.time()
        sockets = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(n)]
        probe, answers, closed = Probe(s, "/health"), [], set()
        for i, c in enumerate(sockets):
            c.setblocking(False)
            try:
                c.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + (b"Content-Length: 100000\r\n\r\n" if i % 2 else b""))
            except OSError:
                closed.add(i)
        while len(closed) < n and time.time() - begin < 60:
            for i, c in enumerate(sockets):
                try:
                    if i not in closed and c.recv(1000) == b"":
                        closed.add(i)
                    elif i not in closed:
                        continue
                except BlockingIOError:
                    c.send(b" " if i % 2 else b"x")
                except OSError:
                    closed.add(i)
            answers.append(s.ask("/v1/completions", SMALL, timeout=30))
            time.sleep(0.2)
        figure(f"{n} slow connections, of which the server closed", f"{len(closed)}, the last after {time.time() - begin:.1f} s")
        figure("small requests meanwhile", statuses(answers))
        figure("resident memory before, after", f"{before:.0f}, {s.memory('VmRSS'):.0f} MB")
        assert probe.stop() == {200} and set(statuses(answers)) <= {200, 503} and len(closed) == n
        assert s.memory("VmRSS") - before < 20
        deadline = time.time() + 60  # the server waits a little for clients that have not closed yet
        while s.ask("/v1/completions", SMALL)[0] != 200:
            assert time.time() < deadline
            time.sleep(0.1)


@attack
def storage():
    """Two clients upload files until the server refuses them."""
    folder = os.path.join(work, "stored")
    with Server(("state-dir", folder), ("max-files", "40"), ("max-file-bytes", "2000000"),
                ("max-tenant-file-bytes", "1200000"), ("max-tenant-files", "30")) as s:
        lines = b'{"custom_id": "1"}\n' * 5000
        answers = {}
        for address in "127.0.0.2", "127.0.0.3":
            answers[address] = together(*[lambda: s.ask("/v1/files?purpose=batch", lines, address=address, Content_Type="application/jsonl")] * 40)
            figure(f"40 uploads of {len(lines)} bytes at once from {address}", statuses(answers[address]))
        files = [os.path.join(d, f) for d, _, names in os.walk(folder) for f in names]
        size = sum(os.path.getsize(f) for f in files)
        modes = {oct(os.stat(f).st_mode & 0o777) for f in files}
        figure("stored", f"{size} bytes, modes {modes}")
        assert set(statuses(answers["127.0.0.2"])) == {200, 413} and set(statuses(answers["127.0.0.3"])) == {200, 507}
        # The records of the files are beside them.
        assert size < 2_000_000 + 100_000 and modes == {"0o600"}


failed = 0
for f in attacks:
    if len(sys.argv) > 1 and f.__name__ not in sys.argv[1:]:
        continue
    print(f"{f.__name__}: {f.__doc__}", flush=True)
    try:
        f()
        print(f"ok - {f.__name__}", flush=True)
    except Exception:
        failed += 1
        traceback.print_exc()
        print(f"not ok - {f.__name__}", flush=True)
shutil.rmtree(work)
sys.exit(failed > 0)
