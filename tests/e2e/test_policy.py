"""Who is served when: priorities, sharing between keys, limits of the queue, deadlines.

A slot is held by one call of many prompts, which is hung up once the test has everything in the queue; nothing here waits for time."""
import json
import re
import subprocess
import threading
import time

import pytest

from conftest import QUIRE, TINY

C = "/v1/completions"
LONG = {"prompt": "a page", "max_tokens": 1900, "ignore_eos": True, "temperature": 0}


class Holder:
    """Holds the only slot with a call of 60 prompts until it is closed."""

    def __init__(self, server, headers="", **fields):
        Later.done.clear()  # between two of its prompts another key's request may already have the slot
        body = json.dumps({**LONG, "prompt": ["hold"] * 60, **fields}).encode()
        self.server, self.sock = server, server.socket()
        self.sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                          % (headers.encode(), len(body)) + body)
        wait_for(lambda: server.metric("vllm:num_requests_running", **auth(headers)) == 1)

    def close(self):
        self.sock.close()


def auth(header):
    return {"headers": dict([header.strip().split(": ")])} if header else {}


def wait_for(condition, timeout_s=60):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


class Later:
    """A request on a thread of its own, which is in the queue once the constructor returns."""

    done = []  # names in order of their ends

    def __init__(self, server, name, body, headers=None, metric_headers=None):
        waiting = server.metric("vllm:num_requests_waiting", headers=metric_headers)
        self.reply = None

        def run():
            self.reply = server.post(C, body, headers=headers)
            Later.done.append(name)

        self.thread = threading.Thread(target=run)
        self.thread.start()
        wait_for(lambda: server.metric("vllm:num_requests_waiting", headers=metric_headers) != waiting)

    def join(self):
        self.thread.join()
        return self.reply


def finish(holder, laters):
    holder.close()
    for r in laters:
        assert r.join().status == 200, r.reply.text
    return list(Later.done)


def body(n=400, **fields):
    return {"prompt": "b", "max_tokens": n, "ignore_eos": True, "temperature": 0, **fields}


def is_refused(r):
    assert r.status == 503, r.text
    assert r.error["type"] == "ServiceUnavailableError" and r.error["param"] is None
    assert 1 <= int(r.headers["retry-after"]) <= 600
    return r.error["message"]


def test_priority_orders_what_waits_and_takes_the_slot(start):
    s = start("--max-num-seqs", "1", "--scheduling-policy", "priority", "--check", "step")
    assert s.metric("quire:scheduling_policy", 'policy="priority"') == 1 and s.metric("quire:scheduling_policy", 'policy="fcfs"') == 0
    hold = Holder(s, priority=-5)
    laters = [Later(s, p, body(priority=p)) for p in (3, 0, 7, -2)]
    laters.append(Later(s, -3, body(), headers={"X-Vllm-Priority": "-3"}))
    assert finish(hold, laters) == [-3, -2, 0, 3, 7]
    s.idle()
    # A better one takes the slot of a running one, which goes on afterwards with the text that it would have had.
    alone = s.complete(**{**LONG, "prompt": "c"})["choices"][0]["text"]
    hold = Holder(s, priority=9)
    urgent = s.complete(**body(5))
    assert urgent["usage"]["completion_tokens"] == 5
    assert s.metric("quire:priority_preemptions_total") >= 1
    line = next(line for line in s.log if "engine: preempted request" in line)
    assert re.search(r"\(its priority 9 goes after priority 0\) so that request \d+ can begin", line), line
    later = Later(s, "c", {**LONG, "prompt": "c", "priority": 9})
    for _ in range(3):
        s.complete(**body(5))
    hold.close()
    assert later.join().json()["choices"][0]["text"] == alone


def test_fcfs_refuses_priorities(start):
    s = start("--max-num-seqs", "1")
    for headers, fields in ((None, {"priority": 1}), ({"X-Vllm-Priority": "1"}, {})):
        r = s.post(C, body(2, **fields), headers=headers)
        assert r.status == 400 and r.error["param"] == "priority", r.text
        assert "scheduling policy is fcfs" in r.error["message"]
    assert s.post(C, body(2, priority=0)).status == 200
    assert s.post(C, body(2), headers={"X-Vllm-Priority": "0"}).status == 200
    hold = Holder(s)
    assert finish(hold, [Later(s, i, body()) for i in range(5)]) == [0, 1, 2, 3, 4]


def test_keys_share_and_a_flood_holds_nobody_up(start):
    s = start("--max-num-seqs", "1", "--api-key", "one,two")
    one, two = ({"Authorization": f"Bearer {k}"} for k in ("one", "two"))
    hold = Holder(s, "Authorization: Bearer one\r\n")
    flood = [Later(s, f"one {i}", body(), headers=one, metric_headers=one) for i in range(6)]
    small = [Later(s, f"two {i}", body(), headers=two, metric_headers=one) for i in range(2)]
    order = finish(hold, flood + small)
    # Key one had its share while it held the slot: key two goes first, then they take turns.
    assert order.index("two 0") == 0 and order.index("two 1") <= 2, order
    assert [x for x in order if x.startswith("one")] == [f"one {i}" for i in range(6)]


def test_queue_limits_answer_at_once(start):
    s = start("--max-num-seqs", "1", "--max-num-queued-reqs", "2")
    hold = Holder(s)  # an empty queue takes a call of any size: 59 wait
    for fields in ({}, {"stream": True}, {"prompt": ["a", "b"]}):
        assert re.match(r"\d\d requests wait already; this server queues at most 2", is_refused(s.post(C, body(1, **fields))))
    assert s.metric("vllm:admission_rejections_total", 'reason="max_num_queued_reqs"') == 3
    hold.close()
    s.idle()
    hold = Holder(s, prompt=["hold"])
    laters = [Later(s, i, body()) for i in range(2)]
    is_refused(s.post(C, body(1)))
    assert finish(hold, laters) == [0, 1]
    s.alive()


def test_queued_tokens_have_a_limit(start):
    s = start("--max-num-seqs", "1", "--max-num-queued-tokens", "400")
    hold = Holder(s)  # 59 short prompts wait
    wait_for(lambda: 0 < s.metric("quire:waiting_prompt_tokens") <= 400)
    r = s.post(C, {"prompt": list(range(5, 405)), "max_tokens": 1})
    assert "prompt tokens wait already; this server queues at most 400" in is_refused(r)
    r = s.post(C, {"prompt": list(range(5, 405)), "max_tokens": 1, "stream": True})
    is_refused(r)
    assert s.metric("vllm:admission_rejections_total", 'reason="max_num_queued_tokens"') == 2
    assert s.metric("vllm:admission_rejections_total", 'reason="max_num_queued_reqs"') == 0
    small = Later(s, "small", body(3))
    assert s.metric("quire:oldest_wait_seconds") > 0
    assert finish(hold, [small]) == ["small"]
    assert s.metric("quire:waiting_prompt_tokens") == 0


@pytest.mark.parametrize("how", ["flag", "field", "header", "stream"])
def test_what_is_not_begun_in_time_gets_503(start, how):
    # With the flag the holder's own prompts may not wait either, so there is but one.
    s = start("--max-num-seqs", "1", *(["--queue-timeout", "0.05", "--check", "step"] if how == "flag" else []))
    hold = Holder(s, **({"prompt": ["hold"]} if how == "flag" else {}))
    fields = {"timeout": 0.05} if how in ("field", "stream") else {}
    t = time.monotonic()
    r = s.post(C, body(3, stream=how == "stream", **fields), headers={"X-Request-Timeout": "0.05"} if how == "header" else None)
    assert re.search(r"waited ([1-9]\d+ ms|[1-9]\d*\.\d s) and was not begun in time", is_refused(r))
    assert time.monotonic() - t >= 0.05
    assert s.metric("quire:requests_expired_total") >= 1
    hold.close()
    s.idle()
    # Whoever runs goes on, however long it takes.
    assert s.post(C, {**LONG, "timeout": 0.05}).json()["usage"]["completion_tokens"] == 1900


def test_bad_values_are_refused_by_name(start):
    s = start("--scheduling-policy", "fair")
    for fields in ({"priority": 1.5}, {"priority": "1"}, {"priority": 2**40}, {"timeout": 0}, {"timeout": -1}, {"timeout": "5"}):
        r = s.post(C, body(1, **fields))
        assert r.status == 400 and r.error["param"] == list(fields)[0], r.text
    for headers in ({"X-Vllm-Priority": "high"}, {"X-Vllm-Priority": "1.5"}, {"X-Request-Timeout": "soon"}, {"X-Request-Timeout": "nan"}):
        r = s.post(C, body(1), headers=headers)
        assert r.status == 400 and r.error["param"] == list(headers)[0], r.text
    for flags, said in ((("--scheduling-policy", "lottery"), "expected auto, fcfs, priority or fair"),
                        (("--max-num-queued-reqs", "many"), "--max-num-queued-reqs"),
                        (("--step-budget-ms", "soon"), "--step-budget-ms: expected auto, 0 or a number of milliseconds"),
                        (("--queue-timeout", "-1"), "--queue-timeout: expected 0 to 1000000 seconds, got -1")):
        p = subprocess.run([QUIRE, "serve", TINY, *flags], capture_output=True, text=True, timeout=60)
        assert p.returncode == 2 and said in p.stderr, p.stderr
