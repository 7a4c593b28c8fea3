"""quire run and quire inspect: one answer, a chat on a terminal, and how the program says no."""
import os
import pty
import select
import signal
import subprocess
import termios
import time

import pytest

from conftest import QUIRE, TINY


def quire(*args, stdin=b"", code=0):
    r = subprocess.run([QUIRE, *args], input=stdin, capture_output=True, timeout=60)
    assert r.returncode == code, (args, r.returncode, r.stderr)
    return r.stdout.decode() if code == 0 else r.stderr.decode()


class Terminal:
    """A chat with the tiny model on a terminal of its own."""

    def __init__(self, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(QUIRE, [QUIRE, "run", TINY, "--max-tokens", "8", "--temperature", "0"], {"TERM": "xterm", **env})
        self.seen = b""

    def type(self, text):
        """Types at a prompt: once the program, not the terminal, takes the keys."""
        end = time.monotonic() + 20
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            assert time.monotonic() < end, "no line is being edited"
        self.seen = b""
        os.write(self.fd, text.encode())

    def until(self, word):
        end = time.monotonic() + 20
        while word.encode() not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.fd], [], [], 0.1)[0]:
                self.seen += os.read(self.fd, 65536)
        return self.seen.decode()

    def end(self):
        """The exit code; what is still written meanwhile is read and dropped."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            try:
                if select.select([self.fd], [], [], 0.05)[0]:
                    os.read(self.fd, 65536)
            except OSError:
                pass
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("the chat did not end")


@pytest.mark.parametrize("env", [{}, {"LC_ALL": "C.UTF-8"}, {"LC_ALL": "POSIX"}])
def test_chat_on_a_terminal(env):
    t = Terminal(env)
    t.until("> ")
    for text in ("Hello", "\u0645\u0631\u062d\u0628\u0627", "\u4f60\u597d", "\U0001f600 caf\u00e9"):
        t.type(text + "\r")
        t.until(text)  # the line is shown as it was typed
        t.until("\n> ")
    t.type("/new\r")
    t.until("\n> ")
    t.type("half a line")
    t.until("half a line")
    t.type("\x03")  # Ctrl-C drops the line, not the chat
    t.until("\n> ")
    t.type("again\r")
    t.until("again")
    t.until("\n> ")
    t.type("\x04")
    assert t.end() == 0


def test_prompts_by_argument_and_by_pipe():
    same = ("--max-tokens", "6", "--temperature", "0")
    answer = quire("run", TINY, "a page", *same)
    assert answer.endswith("\n") and len(answer) > 1
    assert quire("run", TINY, *same, stdin=b"a page\n") == answer
    assert quire("run", TINY, "a page", "--raw", *same) != answer
    assert "no prompt" in quire("run", TINY, *same, code=1)


def test_what_cannot_be_opened_is_one_line():
    for verb in (("serve",), ("run",), ("inspect", "model")):
        words = quire(*verb, "/no/such.gguf", code=1)
        assert words.count("\n") == 1 and "/no/such.gguf" in words
    words = quire("serve", TINY, "--port", "0", "--kv-cache-memory", "16k", code=1)
    assert words.count("\n") == 1 and "estimated maximum model length" in words
    words = quire("serve", TINY, "--port", "0", "--cpu-list", "0,60000", code=2)
    assert words.count("\n") == 1 and "processor 60000" in words
    assert "did you mean --max-model-len" in quire("serve", TINY, "--max-modle-len", "4", code=2)


def test_inspect_says_what_is_there():
    assert "instructions" in quire("inspect", "cpu")
    assert "attn_decode_bf16" in quire("inspect", "kernels")
    assert " ref" in quire("inspect", "kernels", "ref")
    assert "token_embd.weight" in quire("inspect", "model", TINY)
    assert "rms" in quire("inspect", "tensor", TINY, "token_embd.weight")
    assert "no tensor" in quire("inspect", "tensor", TINY, "nope", code=1)


def test_a_taken_port_is_one_line(tiny):
    words = quire("serve", TINY, "--port", str(tiny.port), code=1)
    assert words.count("\n") == 1 and "taken" in words and str(tiny.port) in words


def shell(line):
    r = subprocess.run(["sh", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return r.returncode, r.stderr.decode()


def test_streams_that_are_full_closed_or_endless():
    run = f"'{QUIRE}' run '{TINY}' --raw --max-tokens 2"
    for bad in f"{run} hi >/dev/full", f"{run} hi >&-", f"'{QUIRE}' inspect model '{TINY}' >/dev/full", f"{run} </dev/zero":
        code, err = shell(bad)
        assert code == 1 and err.count("\n") == 1, (bad, code, err)
    assert shell(f"{run} hi <&- 2>&-")[0] == 0


def test_a_terminal_is_not_driven_by_a_file(tmp_path):
    raw = open(TINY, "rb").read()
    at = raw.index(b"general.name") + 4
    bad = tmp_path / "\x1b[2Jbad.gguf"
    bad.write_bytes(raw[:at] + b"\x1b[2J\xff" + raw[at + 5:])
    out = quire("inspect", "model", str(bad))
    assert "gene\\x1b[2J\\xff" in out and "\x1b" not in out
    bad.write_bytes(b"no model")
    assert "\x1b" not in quire("inspect", "model", str(bad), code=1)


@pytest.mark.parametrize("flags", [["--check", "maybe"], ["--api-key="], ["--config=/"], ["--config=/dev/zero"], ["--port=8000.5"],
                                   ["--chat-template=/dev/zero"], ["--chat-template=/"], ["-x"], ["--config=" + TINY]])
def test_options_that_make_no_sense(flags):
    r = subprocess.run([QUIRE, "serve", TINY, *flags], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    assert r.returncode in (1, 2) and r.stderr.count(b"\n") == 1, (r.returncode, r.stderr)


@pytest.mark.parametrize("wait_s", [0, 0.01, 0.03, 0.1, 0.3])
def test_ctrl_c_at_any_moment(wait_s):
    p = subprocess.Popen([QUIRE, "run", TINY, "--raw", "ab", "--max-tokens", "2000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    time.sleep(wait_s)
    p.send_signal(signal.SIGINT)
    assert p.wait(20) in (0, 130, -signal.SIGINT)
