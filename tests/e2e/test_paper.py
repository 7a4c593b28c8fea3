"""make paper, make paper-real: what is no run with the defaults leaves docs/paper alone; what a page says of its runs holds."""
import importlib
import json
import os
import re
import shlex
import subprocess
import sys

from conftest import QUIRE, ROOT

FOLDER = os.path.join(ROOT, "tools", "paper")
DOCS = os.path.join(ROOT, "docs", "paper")


def arguments(name, *words, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module(name).arguments(list(words))


def test_a_quick_look_at_the_real_server_is_printed(monkeypatch):
    page = os.path.join(DOCS, "real.md")
    for words in [], ["--rounds", "3"], ["--model", "/some/where/smollm2-135m-instruct.gguf"]:
        assert arguments("real", *words, monkeypatch=monkeypatch).out == page
    for words in (["--rows", "6"], ["--cap", "40"], ["--blocks", "64"], ["--longest", "512"], ["--rate", "0"], ["--seed", "2"],
                  ["--model", "other.gguf"]):
        assert arguments("real", *words, monkeypatch=monkeypatch).out == "-"
    assert arguments("real", "--rows", "6", "--out", "x.md", monkeypatch=monkeypatch).out == "x.md"


def test_figures_of_other_runs_go_to_the_build_folder(monkeypatch, tmp_path):
    assert arguments("make", "--only", "waste", monkeypatch=monkeypatch).out == DOCS
    for words in ["--requests", "20"], ["--seed", "2"]:
        assert arguments("make", *words, monkeypatch=monkeypatch).out == os.path.join(ROOT, "build", "paper")
    p = subprocess.run([sys.executable, os.path.join(FOLDER, "make.py"), "--quire", QUIRE, "--only", "waste", "--requests", "20", "--out", tmp_path],
                       capture_output=True, text=True, timeout=300)
    assert p.returncode == 0 and "| vLLM |" in p.stdout, p.stderr
    assert [f.name for f in tmp_path.iterdir()] == ["memory_waste.svg"]


def test_a_page_tells_a_run_that_gives_its_number(tmp_path):
    p = subprocess.run([sys.executable, os.path.join(FOLDER, "make.py"), "--quire", QUIRE, "--only", "waste", "--requests", "20", "--out", tmp_path],
                       capture_output=True, text=True, timeout=300)
    assert p.returncode == 0, p.stderr
    command = shlex.split(re.search(r"`(quire sim [^`]*)`", p.stdout).group(1))
    run = subprocess.run([QUIRE, *command[1:], "--json", "-"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert f"| vLLM | {100 * json.loads(run.stdout)['kv_used']:.1f} |" in p.stdout


def test_a_sustained_rate_is_found_outside_its_bounds(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    runs = importlib.import_module("sims").Sims("quire", 10, 1)
    runs.get = lambda model, request_rate: {"normalized_latency_s": float(request_rate) / 100}
    for lo, hi in (40, 60), (1, 10), (60, 100), (51, 1000):
        assert 0.97 * 50 <= runs.sustained(0.5, lo, hi, "model") <= 50


def test_the_walk_of_a_block_table_is_read_from_the_comparison(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    real = importlib.import_module("real")
    got = real.walk_rows("type   context    block  order      time / one run's    bound  of minima     GB/s\n"
                         "bf16   32 x 295   16     ascending            1.0100   1.0200     1.0000     16.0\n"
                         "bf16   32 x 295   16     shuffled             1.0712   1.0800     1.0600     15.0\n"
                         "bf16   32 x 295   64     shuffled             1.0310   1.0400     1.0300     15.5\n"
                         "int8    8 x 2048  16     shuffled             1.2500   1.2700     1.2400     12.0\n")
    assert got == {("bf16", "32 x 295"): {16: 1.0712, 64: 1.031}, ("int8", "8 x 2048"): {16: 1.25}}
    assert "| bf16 | 32 x 295 | 1.07 | 1.03 |" in real.walk_page({k: v for k, v in got.items() if k[0] == "bf16"})
