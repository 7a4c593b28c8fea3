"""make paper, make paper-real: what is no run with the defaults leaves docs/paper alone."""
import importlib
import os
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
