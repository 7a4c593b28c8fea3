"""/metrics: vLLM's names and meanings."""
import threading
import time

COUNTERS = ["prompt_tokens", "generation_tokens", "num_preemptions", "prefix_cache_queries", "prefix_cache_hits", "prompt_tokens_cached",
            "external_prefix_cache_queries", "external_prefix_cache_hits", "mm_cache_queries", "mm_cache_hits"]
HISTOGRAMS = ["time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
              "e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds", "request_prefill_time_seconds",
              "request_decode_time_seconds", "request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens",
              "request_params_max_tokens", "request_params_n", "request_num_preemptions", "iteration_tokens_total",
              "request_prefill_kv_computed_tokens"]
LABELS = '{model_name="m",engine="0"'


def test_everything_is_there_before_the_first_request(start):
    s = start("--served-model-name", "m", "--num-kv-blocks", "128")
    r = s.get("/metrics")
    assert r.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    m = s.metrics()
    for name in COUNTERS:
        assert m[f"vllm:{name}_total{LABELS}}}"] == 0
        assert m[f"vllm:{name}_created{LABELS}}}"] > 1.7e9
    for name in HISTOGRAMS:
        assert m[f"vllm:{name}_count{LABELS}}}"] == 0 and m[f'vllm:{name}_bucket{LABELS},le="+Inf"}}'] == 0
    for reason in "stop", "length", "abort", "error":
        assert m[f'vllm:request_success_total{LABELS},finished_reason="{reason}"}}'] == 0
    for source in "device", "host", "p2p", "disk", "external_unspecified":
        assert m[f'vllm:prompt_tokens_cached_by_source_total{LABELS},source="{source}"}}'] == 0
    for name in "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc":
        assert m[f"vllm:{name}{LABELS}}}"] == 0
    config = next(k for k in m if k.startswith("vllm:cache_config_info"))
    assert 'block_size="16"' in config and 'num_gpu_blocks="128"' in config
    assert m["process_resident_memory_bytes"] > 1e6


def test_the_text_is_well_formed(tiny):
    seen, typed = set(), None
    for line in tiny.get("/metrics").text.splitlines():
        if line.startswith("# TYPE "):
            typed, kind = line.split(" ")[2:]
            assert typed not in seen, "a name stands in two places"
            seen.add(typed)
        elif not line.startswith("#"):
            name, value = line.split("{")[0].split(" ")[0], float(line.rsplit(" ", 1)[1])
            assert name == typed or (kind == "histogram" and name in (typed + "_bucket", typed + "_count", typed + "_sum")), line
            assert value >= 0


def test_requests_are_counted(start):
    s = start("--served-model-name", "m", "--num-kv-blocks", "512", "--max-num-batched-tokens", "128")
    n = s.complete(list(range(10, 310)), max_tokens=50, ignore_eos=True)["usage"]
    s.stream("/v1/completions", {"prompt": "a", "max_tokens": 7, "temperature": 0, "ignore_eos": True})
    text = s.complete("the quick brown fox", max_tokens=30, ignore_eos=True)["choices"][0]["text"]
    s.complete("the quick brown fox", max_tokens=30, ignore_eos=True, stop=text[5:9])
    s.idle()
    m = s.metrics()

    def value(name, extra=""):
        return m[f"vllm:{name}{LABELS}{extra}}}"]

    assert value("prompt_tokens_total") == n["prompt_tokens"] + sum(s.post("/tokenize", {"prompt": p}).json()["count"]
                                                                     for p in ["a"] + ["the quick brown fox"] * 2)
    assert value("request_success_total", ',finished_reason="length"') == 3
    assert value("request_success_total", ',finished_reason="stop"') == 1
    for name in HISTOGRAMS:
        if name not in ("inter_token_latency_seconds", "iteration_tokens_total"):
            assert value(name + "_count") == 4, name
    made = value("request_generation_tokens_sum")
    assert value("inter_token_latency_seconds_count") == made - 4
    assert 50 + 7 + 30 < made <= value("generation_tokens_total")
    assert value("iteration_tokens_total_count") > 50
    computed = value("prompt_tokens_by_source_total", ',source="local_compute"')
    assert computed + value("prefix_cache_hits_total") == value("prompt_tokens_total") == value("prefix_cache_queries_total")
    assert value("iteration_tokens_total_sum") >= computed + made - 4
    assert value("iteration_tokens_total_bucket", ',le="1.0"') > 0
    assert value("e2e_request_latency_seconds_sum") > value("time_to_first_token_seconds_sum") > 0
    buckets = [v for k, v in m.items() if k.startswith("vllm:inter_token_latency_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert m[f"quire:kv_waste_ratio{LABELS}}}"] > 0


def test_scraping_is_cheap(tiny):
    tiny.get("/metrics")
    begin = time.monotonic()
    for _ in range(50):
        tiny.get("/metrics")
    assert (time.monotonic() - begin) / 50 < 0.02  # with Python's client and a connection each time


def test_load_shows_in_gauges(start):
    s = start("--max-num-seqs", "2", "--num-kv-blocks", "512")
    socks = []
    import json
    for _ in range(4):
        raw = json.dumps({"prompt": "a", "max_tokens": 1500, "ignore_eos": True}).encode()
        sock = s.socket()
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
        socks.append(sock)
    end = time.monotonic() + 10
    while True:
        running, waiting = s.metric("vllm:num_requests_running"), s.metric("vllm:num_requests_waiting")
        if (running, waiting) == (2, 2):
            break
        assert time.monotonic() < end, (running, waiting)
    assert s.metric("vllm:num_requests_waiting_by_reason", 'reason="capacity"') == 2
    assert 0 < s.metric("vllm:kv_cache_usage_perc") < 1
    assert s.get("/load").json()["server_load"] >= 4
    for sock in socks:
        sock.close()
    s.idle()


def test_debug_kv_shows_every_block_and_table(start):
    s = start("--num-kv-blocks", "64", "--max-num-seqs", "2")
    assert s.kv()["sequences"] == []
    done = []
    threads = [threading.Thread(target=lambda n=n: done.append(s.complete(list(range(n, 2 * n)), max_tokens=400, ignore_eos=True)))
               for n in (40, 20, 30)]  # that begin differently: no block is shared
    for t in threads:
        t.start()
    while True:  # until one of three waits for the two slots
        assert any(t.is_alive() for t in threads), "never seen"
        kv = s.kv()
        states = [q["state"] for q in kv["sequences"]]
        if states == ["running", "running", "waiting"]:
            break
    running = kv["sequences"][:2]
    used = {i for i, c in enumerate(kv["states"]) if c.isdigit()}
    tables = [b for q in running for b in q["blocks"]]
    assert len(tables) == len(set(tables)) and set(tables) == used and kv["blocks_used"] == len(used)
    for q in running:
        assert len(q["blocks"]) * kv["block_size"] >= q["computed_tokens"] > 0 and q["age_s"] > 0
    assert kv["sequences"][2]["blocks"] == [] and kv["sequences"][2]["computed_tokens"] == 0
    for t in threads:
        t.join()
    assert len(done) == 3 and s.kv()["sequences"] == []


def test_an_idle_server_gives_its_pool_back(start):
    s = start("--kv-idle-release", "0.2")
    s.complete(list(range(10, 210)), max_tokens=4, ignore_eos=True)
    assert s.kv()["steps"] > 0
    for _ in range(200):  # the deadline of a wait, not the wait itself
        if s.kv()["resident_bytes"] == 0:
            break
        time.sleep(0.05)
    assert s.kv()["resident_bytes"] == 0
    again = s.complete(list(range(10, 210)), max_tokens=4, ignore_eos=True)
    assert again["usage"]["completion_tokens"] == 4 and s.kv()["resident_bytes"] > 0
