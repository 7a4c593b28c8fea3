"""Small inputs that broke other servers. The numbers are rows of the list that the project keeps of them."""
import json
import threading
import time

import pytest

from conftest import on_threads, sse

C, H = "/v1/completions", "/v1/chat/completions"


def refused(server, path, body, param=None, status=400):
    r = server.post(path, body)
    assert r.status == status, (body if len(str(body)) < 200 else str(body)[:200], r.status, r.text[:300])
    assert len(r.body) <= 1024
    e = r.error
    assert e["code"] == status and e["message"]
    if param:
        assert e["param"] == param, (body, e)
    return e


def test_row_1_surrogates(tiny):
    for bad in rb"x \ud83d y", rb"\ude00", rb"\ud83d\ud83d", rb"\ude00\ud83d":
        refused(tiny, H, b'{"messages":[{"role":"user","content":"' + bad + b'"}],"max_tokens":1}')
    good = b'{"messages":[{"role":"user","content":"x \\ud83d\\ude00 y"}],"max_tokens":1}'
    assert tiny.post(H, good).status == 200
    tiny.alive()


def test_row_2_broken_utf8(tiny):
    for bad in b"caf\xC3", b"\xFF", b"\xC0\x80", b"a\x00b", b"\xED\xA0\x80", b"\xF4\x90\x80\x80":
        refused(tiny, C, b'{"prompt":"' + bad + b'"}')
    tiny.alive()


def test_row_5_stops_across_tokens(tiny):
    whole = tiny.complete("the quick brown fox", max_tokens=60)["choices"][0]["text"]
    assert len(whole) > 40
    for at, n in (7, 9), (12, 1), (20, 15), (3, 5):
        stop = whole[at:at + n]
        want = whole[:whole.index(stop)]
        r = tiny.complete("the quick brown fox", max_tokens=60, stop=[stop])["choices"][0]
        assert r["text"] == want and r["finish_reason"] == "stop" and r["stop_reason"] == stop
        kept = tiny.complete("the quick brown fox", max_tokens=60, stop=stop, include_stop_str_in_output=True)["choices"][0]
        assert kept["text"] == want + stop
        events = tiny.stream(C, {"prompt": "the quick brown fox", "max_tokens": 60, "temperature": 0, "stop": [stop]})
        assert "".join(e["choices"][0]["text"] for e in events) == want
        assert events[-1]["choices"][0]["stop_reason"] == stop


def test_row_5_one_stop_is_a_prefix_of_another(tiny):
    whole = tiny.complete("the quick brown fox", max_tokens=60)["choices"][0]["text"]
    short, long = whole[10:13], whole[10:18]
    for stops in [short, long], [long, short]:
        r = tiny.complete("the quick brown fox", max_tokens=60, stop=stops)["choices"][0]
        assert r["text"] == whole[:whole.index(short)] and r["stop_reason"] == short


def test_row_7_max_tokens(tiny):
    refused(tiny, C, {"prompt": "a", "max_tokens": 0}, "max_tokens")
    r = tiny.complete("a b c", max_tokens=0, echo=True, logprobs=1)
    assert r["choices"][0]["logprobs"]["token_logprobs"][0] is None and r["usage"]["completion_tokens"] == 0
    assert tiny.complete("a", max_tokens=None)["usage"]["completion_tokens"] == 16
    for bad in -1, "16", 1.5, 1e30, True, [], {}:
        refused(tiny, C, {"prompt": "a", "max_tokens": bad}, "max_tokens")
    assert tiny.complete("a", max_tokens=3.0)["usage"]["completion_tokens"] == 3
    tiny.alive()


def test_row_8_n(tiny):
    for bad in 1000000, 65, 0, -1, "2", 1.5:
        refused(tiny, C, {"prompt": "a", "n": bad}, "n")
    refused(tiny, C, {"prompt": ["a"] * 1024, "n": 5}, "n")
    refused(tiny, C, {"prompt": "a", "best_of": 100000}, "best_of")
    assert tiny.complete("a", n=1, best_of=1, max_tokens=1)
    tiny.alive()


def test_row_9_empty_prompts(tiny):
    for bad in {"prompt": ""}, {"prompt": []}, {"prompt": [[]]}, {}, {"prompt": None}, {"prompt": ["a", ""]}, {"prompt": [""]}, \
            {"prompt": 5}, {"prompt": {}}, {"prompt": ["a", [1]]}, {"prompt": [None]}:
        refused(tiny, C, bad, "prompt")
    refused(tiny, H, {"messages": []}, "messages")
    refused(tiny, H, {}, "messages")
    refused(tiny, C, {"prompt": ["a"] * 1025}, "prompt")
    tiny.alive()


def test_row_11_token_ids(tiny):
    ids = tiny.complete("a", max_tokens=3, logit_bias={"97": 1e9}, return_token_ids=True)["choices"][0]["token_ids"]
    assert ids == [97] * 3
    for bad in {"999999999": 1}, {"-1": 1}, {"abc": 1}, {"5": "x"}, {str(i): 1 for i in range(100000)}:
        refused(tiny, C, {"prompt": "a", "logit_bias": bad}, "logit_bias")
    refused(tiny, C, {"prompt": "a", "stop_token_ids": [999999999]}, "stop_token_ids")
    refused(tiny, C, {"prompt": "a", "allowed_token_ids": []}, "allowed_token_ids")
    refused(tiny, C, {"prompt": "a", "allowed_token_ids": [-5]}, "allowed_token_ids")
    refused(tiny, C, {"prompt": [5, 999999]}, "prompt")
    refused(tiny, C, {"prompt": [-1]}, "prompt")
    allowed = tiny.complete("a", max_tokens=8, allowed_token_ids=[100, 101], return_token_ids=True)["choices"][0]["token_ids"]
    assert set(allowed) <= {100, 101}
    tiny.alive()


def test_row_12_deep_json(tiny):
    refused(tiny, C, b"[" * 100000)
    refused(tiny, C, b'{"a":' * 60000)
    refused(tiny, C, b'{"prompt":"a","x":' + b"[" * 100 + b"]" * 100 + b"}")
    schema = {}
    for _ in range(25):
        schema = {"properties": {"a": schema}}
    refused(tiny, H, {"messages": [{"role": "user", "content": "a"}],
                      "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}, "response_format")
    tiny.alive()


def test_row_17_clients_that_leave(start):
    s = start("--threads", "1", "--num-kv-blocks", "1024", "--max-num-seqs", "2", "--max-num-batched-tokens", "64")
    free = s.idle()["blocks_free"]

    def send(body, path=C):
        sock = s.socket()
        raw = json.dumps(body).encode()
        sock.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(raw)) + raw)
        return sock

    def wait_for(condition):
        end = time.monotonic() + 10
        while not condition(s.kv()):
            assert time.monotonic() < end, s.kv()
            time.sleep(0.002)

    long = {"prompt": "the quick", "max_tokens": 1900, "ignore_eos": True}
    streaming = send({**long, "stream": True})
    assert b"200" in streaming.recv(64)
    streaming.close()
    s.idle()
    plain = send(long)
    wait_for(lambda kv: kv["running"] == 1)
    plain.close()
    s.idle()
    running = [send(long), send(long)]
    wait_for(lambda kv: kv["running"] == 2)
    queued = send(long)
    wait_for(lambda kv: kv["waiting"] == 1)
    queued.close()
    wait_for(lambda kv: kv["waiting"] == 0)
    assert s.kv()["running"] == 2  # the others go on
    for r in running:
        r.close()
    s.idle()
    prefilling = send({"prompt": list(range(10, 500)) * 4, "max_tokens": 50})
    wait_for(lambda kv: kv["running"] == 1)
    prefilling.close()
    assert s.idle()["blocks_free"] == free
    end = time.monotonic() + 10
    while s.metric("vllm:request_success_total", 'finished_reason="abort"') != 6:
        assert time.monotonic() < end
    assert s.metric("vllm:generation_tokens_total") < 6 * 1800
    s.alive()


def test_row_19_more_than_the_pool(start):
    s = start("--num-kv-blocks", "64", "--max-model-len", "1024", "--check", "step")
    prompts = [list(range(10 + i, 310 + i)) for i in range(8)]  # 300 + 340 tokens: 40 blocks of 16

    def run(prompt):
        return s.complete(prompt, max_tokens=340, ignore_eos=True)["choices"][0]["text"]

    solo = [run(p) for p in prompts]
    assert s.metric("vllm:num_preemptions_total") == 0
    assert on_threads(run, prompts) == solo
    assert s.metric("vllm:num_preemptions_total") > 0
    s.idle()
    s.alive()


def test_row_22_the_same_answer_everywhere(start):
    prompt = {"prompt": list(range(20, 420)), "max_tokens": 40, "logprobs": 2, "ignore_eos": True}
    others = [{"prompt": list(range(30 + i, 60 + 7 * i)), "max_tokens": 60, "ignore_eos": True} for i in range(31)]

    def run(server, body):
        choice = server.complete(**body)["choices"][0]
        return choice["text"], choice["logprobs"]

    s = start("--num-kv-blocks", "2048")
    alone = run(s, prompt)
    assert run(s, prompt) == alone
    assert on_threads(lambda b: run(s, b), [prompt] + others)[0] == alone
    for flags in ("--max-num-batched-tokens", "16", "--max-num-seqs", "16"), ("--max-num-batched-tokens", "2048"), ("--threads", "1"), ("--block-size", "64"):
        assert run(start(*flags), prompt) == alone, flags
    small = start("--num-kv-blocks", "32", "--max-model-len", "512")  # 28 blocks for one: any other preempts or waits
    results = on_threads(lambda b: run(small, b), [prompt] * 4)
    assert results == [alone] * 4


def test_row_23_prompt_logprobs(tiny):
    body = {"prompt": list(range(20, 80)), "prompt_logprobs": 1, "max_tokens": 1}
    a, b = (tiny.complete(**body)["choices"][0]["prompt_logprobs"] for _ in range(2))
    assert a == b and a[0] is None and len(a) == 60
    echo = tiny.complete(list(range(20, 80)), max_tokens=1, echo=True, logprobs=1)["choices"][0]["logprobs"]["token_logprobs"]
    assert [e[str(20 + i)]["logprob"] for i, e in enumerate(a) if e] == echo[1:60]


def test_row_26_templates(tiny):
    ask = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    refused(tiny, H, {**ask, "chat_template": "{% for i in range(999999999) %}x{% endfor %}"}, "chat_template")
    refused(tiny, H, {**ask, "chat_template": "{{(((" * 200000}, "chat_template")
    for kwargs in {"tokenize": True}, {"add_generation_prompt": "x"}, {"messages": []}:
        refused(tiny, H, {**ask, "chat_template_kwargs": kwargs}, "chat_template_kwargs")
    assert tiny.post(H, {**ask, "chat_template_kwargs": {"enable_thinking": False}}).status == 200
    tiny.alive()


def test_row_26_a_template_that_refuses(start):
    s = start("--chat-template", "{{ raise_exception('only cats may speak') }}")
    assert "only cats may speak" in refused(s, H, {"messages": [{"role": "user", "content": "x"}]})["message"]
    s.alive()


@pytest.mark.parametrize("field,values", [
    ("temperature", [-1, 3, "0.7", True]), ("top_p", [0, 1.0001]), ("top_k", [-2, 1.5]), ("min_p", [2]), ("repetition_penalty", [0]),
    ("presence_penalty", [2.5]), ("frequency_penalty", [-2.1]), ("seed", [9223372036854775808]), ("logprobs", [-2, "5", 100000]),
    ("priority", [1e30]), ("stop", [["", "a"], ["1", "2", "3", "4", "5"]]), ("cache_salt", ["", "a/b"]),
])
def test_row_27_numbers(tiny, field, values):
    for v in values:
        refused(tiny, C, {"prompt": "a", field: v}, field)


def test_row_27_numbers_that_are_none(tiny):
    for text in "NaN", "1e400", "-Infinity", "0x10", "01", "1.", "+1":
        refused(tiny, C, ('{"prompt":"a","temperature":%s}' % text).encode())
    refused(tiny, C, {"prompt": "a", "min_tokens": 5, "max_tokens": 2}, "min_tokens")
    assert tiny.complete("a", seed=-1, max_tokens=1)
    tiny.alive()


# --- 29: HTTP ---

def talk(server, raw, timeout=20):
    """Sends bytes, reads until the server closes or is silent for a moment."""
    with server.socket(timeout) as sock:
        sock.sendall(raw)
        sock.settimeout(3)
        out = b""
        try:
            while True:
                got = sock.recv(65536)
                if not got:
                    break
                out += got
        except (TimeoutError, ConnectionResetError):
            pass
        return out


def status_of(raw):
    return int(raw.split(b" ", 2)[1]) if raw.startswith(b"HTTP/1.1 ") else None


def post_raw(body, extra=b"", close=True):
    return (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + (b"Connection: close\r\n" if close else b"") + extra
            + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def test_row_29_bodies(tiny):
    refused(tiny, C, b"")
    refused(tiny, C, b'{"prompt":"a"')
    refused(tiny, C, b'{"prompt":"a"} x')
    r = tiny.post(C, b'{"prompt":"a"}', headers={"Content-Type": "text/plain"})
    assert r.status == 400 and "Only 'application/json' is allowed" in r.error["message"]
    ok = tiny.post(C, b'{"prompt":"a","max_tokens":1}', headers={"Content-Type": "application/json; charset=utf-8"})
    assert ok.status == 200
    refused(tiny, C, b"x" * (100 << 20), status=413)
    assert status_of(talk(tiny, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n")) == 400
    tiny.alive()


def test_row_29_headers(tiny):
    many = b"".join(b"X-H%d: 1\r\n" % i for i in range(10000))
    assert status_of(talk(tiny, b"GET /health HTTP/1.1\r\nHost: x\r\n" + many + b"\r\n")) == 431
    assert status_of(talk(tiny, b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n")) == 431
    tiny.alive()


def test_row_29_methods(tiny):
    for path, get in ("/health", True), ("/v1/models", True), ("/metrics", True), (C, False), (H, False), ("/tokenize", False):
        assert tiny.request("OPTIONS", path).status == 204
        head = tiny.request("HEAD", path)
        assert head.status == (200 if get else 405) and head.body == b""
        put = tiny.request("PUT", path, {})
        assert put.status == 405 and put.headers["allow"]
        assert tiny.request("GET", path).status == (200 if get else 405)
    assert tiny.get("/nowhere").status == 404
    assert tiny.get("/metrics/").status == 200


def test_row_29_connections(tiny):
    body = b'{"prompt":"a","max_tokens":1}'
    raw = talk(tiny, post_raw(b"{", close=False) + post_raw(body))  # pipelined, the first refused
    assert [status_of(b"HTTP/1.1 " + p) for p in raw.split(b"HTTP/1.1 ")[1:]] == [400, 200]
    with tiny.socket() as sock:
        sock.sendall(post_raw(body, b"Expect: 100-continue\r\n")[:-len(body)])
        assert sock.recv(1000).startswith(b"HTTP/1.1 100")
        sock.sendall(body)
        assert b" 200 " in sock.recv(1000)[:20]
    idle = [tiny.socket() for _ in range(500)]
    tiny.alive()
    for s in idle:
        s.close()
    tiny.alive()


def test_errors_never_repeat_the_input(tiny):
    secret = "tEllNobody" * 30
    for path, body in [(C, {"prompt": "a", "stop": [secret, 5]}), (C, {"prompt": "a", "model": secret}), (C, {"prompt": "a", "temperature": secret}),
                       (H, {"messages": [{"role": secret, "content": "x"}]}), (C, ("{" + secret).encode()), ("/tokenize", {"prompt": [secret]}),
                       (C, {"prompt": "a", "response_format": {"type": secret}}), (H, {"messages": [{"role": "user", "content": [{"type": secret}]}]})]:
        r = tiny.post(path, body)
        assert r.status in (400, 404) and "tEllNobody" not in r.text and len(r.body) <= 1024


def test_answers_of_gigabytes_are_refused(tiny):
    many = [[5] * 300] * 1024
    refused(tiny, C, {"prompt": many, "max_tokens": 1, "prompt_logprobs": 20}, "prompt_logprobs")
    refused(tiny, C, {"prompt": many, "max_tokens": 1, "logprobs": 20, "echo": True}, "logprobs")
    refused(tiny, C, {"prompt": ["a"] * 1024, "max_tokens": 1000, "logprobs": 20}, "logprobs")
    r = tiny.post(C, {"prompt": ["a"] * 1024, "max_tokens": 1, "logprobs": 20})
    assert r.status == 200 and len(r.json()["choices"]) == 1024


def test_unsupported_fields_are_named(tiny):
    ask = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    for field, value in [("tools", [{"type": "function", "function": {"name": "f"}}]), ("response_format", {"type": "json_object"}),
                         ("guided_json", {}), ("structured_outputs", {"json": {}}), ("reasoning_effort", "low"), ("suffix", "x")]:
        refused(tiny, H, {**ask, field: value}, field)
    refused(tiny, H, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/"}}]}]}, "messages")


def test_slow_reader_holds_nobody_up(start):
    s = start("--num-kv-blocks", "2048")
    sock = s.socket()
    body = json.dumps({"prompt": "a", "max_tokens": 1900, "stream": True, "ignore_eos": True, "logprobs": 20}).encode()
    sock.sendall(post_raw(body))  # and never reads: with 20 logprobs a token this is megabytes
    begin = time.monotonic()
    for _ in range(5):
        s.alive()
    s.idle(60)
    assert time.monotonic() - begin < 60
    sock.settimeout(10)
    raw = b""
    while chunk := sock.recv(1 << 20):
        raw += chunk
    assert raw.rstrip().endswith(b"0") and b"data: [DONE]" in raw
    sock.close()


def test_streams_end_with_an_error_event_when_the_server_stops(start):
    s = start("--threads", "1")
    out = {}

    def read():
        out["reply"] = s.post(C, {"prompt": "a", "max_tokens": 1900, "stream": True, "ignore_eos": True})

    t = threading.Thread(target=read)
    t.start()
    while s.metric("quire:http_open_streams") == 0:
        time.sleep(0.005)
    s.proc.terminate()
    t.join(20)
    events = sse(out["reply"].body)
    assert "error" in events[-1] and events[-1]["error"]["code"] == 503
