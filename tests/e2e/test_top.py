"""quire top: one picture as text, and what it says when there is nothing to show."""
import subprocess

from conftest import QUIRE


def top(*args):
    return subprocess.run([QUIRE, "top", *args], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def test_a_picture_of_an_idle_server(start):
    s = start("--num-kv-blocks", "64", "--served-model-name", "modèle-é", "--no-enable-prefix-caching")
    s.complete(list(range(10, 60)), max_tokens=4, ignore_eos=True)
    r = top(s.base, "--once")
    lines = r.stdout.splitlines()
    assert r.returncode == 0 and r.stderr == ""
    assert lines[0] == f"quire top  modèle-é at {s.base}"
    assert lines[1].startswith("running 0  waiting 0  out 0 tok/s")
    assert lines[2].startswith("KV 0 % of 64 blocks")
    assert "".join(lines[4:5]) == "." * 64


def test_a_large_pool_shows_what_is_in_use(start):
    s = start("--num-kv-blocks", "20000", "--served-model-name", "m")
    s.complete(list(range(10, 60)), max_tokens=4, ignore_eos=True)
    lines = top("--port", str(s.port), "--once").stdout.splitlines()  # its cached blocks are to be seen one by one
    assert lines[0] == f"quire top  m at {s.base}"
    assert lines[3].startswith("a cell is 1 block of 16 tokens")
    assert lines[4].startswith("blocks 0 to ") and "--whole" in lines[4]
    assert lines[5].startswith("::") and lines[5].endswith("." * 60)
    whole = top(s.base, "--once", "--whole").stdout
    assert "no request holds" not in whole and "blocks of 16 tokens" in whole
    r = top(s.base, "--port", "9")
    assert r.returncode == 2 and "expected a URL, or --host and --port" in r.stderr


def test_a_key_is_sent_and_a_wrong_one_is_said(start):
    s = start("--api-key", "secret")
    assert top(s.base, "--once", "--api-key", "secret").returncode == 0
    r = top(s.base, "--once")
    assert r.returncode == 1 and "401" in r.stderr


def test_no_server_and_bad_words():
    r = top("http://127.0.0.1:9", "--once")
    assert r.returncode == 1 and "refused" in r.stderr
    r = top("ftp://x:y")
    assert r.returncode == 2 and "expected a URL" in r.stderr
    r = top("--interval", "0")
    assert r.returncode == 2 and "--interval" in r.stderr
    assert "usage: quire top" in top("--help").stdout
