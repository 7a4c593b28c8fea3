"""Servers for the end-to-end tests: build/quire on a tiny random-weight model, or (marker `real`) on the default model.

QUIRE names the program, QUIRE_BUILD the build folder (tiny/tiny.gguf is there), QUIRE_TEST_MODEL the default model's file."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("QUIRE_BUILD", os.path.join(ROOT, "build"))
QUIRE = os.environ.get("QUIRE", os.path.join(BUILD, "quire"))
TINY = os.path.join(BUILD, "tiny", "tiny.gguf")
START_S = 60


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode()

    @property
    def error(self):
        return self.json()["error"]


class Server:
    """One `quire serve` on a free port of its own."""

    def __init__(self, model, *flags, wait=True):
        self.model = model
        self.log = []
        self.proc = subprocess.Popen([QUIRE, "serve", model, "--port", "0", *flags], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                     text=True, errors="replace")
        self.port = None
        self._ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        if not self._ready.wait(START_S) or self.port is None:
            self.proc.kill()
            raise RuntimeError("the server did not start:\n" + "".join(self.log))

    def _read(self):
        for line in self.proc.stderr:
            self.log.append(line)
            m = re.search(r"listening on http://\S+:(\d+)", line)
            if m:
                self.port = int(m.group(1))
                self._ready.set()
        self._ready.set()

    @property
    def base(self):
        return f"http://127.0.0.1:{self.port}"

    def request(self, method, path, body=None, headers=None, timeout=600):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        try:
            conn.request(method, path, body=body, headers=headers)
            r = conn.getresponse()
            return Reply(r.status, {k.lower(): v for k, v in r.getheaders()}, r.read())
        finally:
            conn.close()

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def complete(self, prompt, **fields):
        r = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})
        assert r.status == 200, r.text
        return r.json()

    def chat(self, content, **fields):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        r = self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, **fields})
        assert r.status == 200, r.text
        return r.json()

    def stream(self, path, body):
        """The events of a stream as objects; the last must be [DONE]."""
        r = self.post(path, {**body, "stream": True})
        assert r.status == 200, r.text
        assert r.headers["content-type"].startswith("text/event-stream")
        return sse(r.body)

    def metrics(self, headers=None):
        out = {}
        for line in self.get("/metrics", headers=headers).text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def metric(self, name, label="", headers=None):
        found = [v for k, v in self.metrics(headers).items() if k.split("{")[0] == name and label in k]
        assert len(found) == 1, (name, label, found)
        return found[0]

    def kv(self):
        return self.get("/debug/kv").json()

    def idle(self, timeout_s=20):
        """Waits until nothing runs or waits, and every block is free."""
        end = time.monotonic() + timeout_s
        while True:
            kv = self.kv()
            if kv["running"] == 0 and kv["waiting"] == 0 and kv["blocks_used"] == 0:
                return kv
            assert time.monotonic() < end, kv
            time.sleep(0.01)

    def alive(self):
        assert self.get("/health").status == 200
        assert len(self.complete("a page of text", max_tokens=4)["choices"]) == 1

    def socket(self, timeout=20):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)
        try:
            code = self.proc.wait(20)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            raise
        assert code == 0, (code, "".join(self.log[-20:]))


def sse(body):
    events = body.decode().split("\n\n")
    assert events.pop() == ""
    assert events.pop() == "data: [DONE]"
    for e in events:
        assert e.startswith("data: ") and "\n" not in e
    return [json.loads(e[6:]) for e in events]


def on_threads(fn, items, n=64):
    """fn of every item, on at most n threads at once; results in order, the first exception raised."""
    results, errors, lock, todo = [None] * len(items), [], threading.Lock(), list(enumerate(items))[::-1]

    def work():
        while True:
            with lock:
                if not todo or errors:
                    return
                i, item = todo.pop()
            try:
                results[i] = fn(item)
            except BaseException as e:
                with lock:
                    errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(min(n, len(items)))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


def _serve(model, *flags):
    s = Server(model, *flags)
    yield s
    s.stop()


@pytest.fixture(scope="session")
def tiny():
    yield from _serve(TINY, "--check", "step", "--num-kv-blocks", "2048", "--served-model-name", "m,m-alias", "--seed", "1")


@pytest.fixture
def start():
    """Starts a server on the tiny model with flags of the test's own."""
    started = []

    def begin(*flags, model=TINY):
        started.append(Server(model, *flags))
        return started[-1]

    yield begin
    for s in started:
        s.stop()


def real_model():
    path = os.environ.get("QUIRE_TEST_MODEL", os.path.expanduser("~/.cache/quire/models/smollm2-135m-instruct.gguf"))
    if not os.path.exists(path):
        pytest.skip("the default model is not here: " + path)
    return path


@pytest.fixture(scope="session")
def real():
    yield from _serve(real_model(), "--kv-cache-memory", "2G", "--max-model-len", "4096")


@pytest.fixture
def start_real(start):
    return lambda *flags: start(*flags, model=real_model())
