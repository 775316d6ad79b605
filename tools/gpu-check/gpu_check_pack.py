"""Builds what gpu-check needs and collects it in a folder that, with the checkout's files, is at most 64 MiB."""

import glob, json, os, shutil, subprocess, sys, tarfile, tempfile

import gpu_check_kernels
from gpu_check_run import BINARIES, ROOT, SIMULATOR

# MiB of the checkout's files and the pack.
LIMIT = 64


def pack(folder, profile):
    """Fills the folder."""
    settings = {"CARGO_PROFILE_RELEASE_DEBUG": "0", "CARGO_PROFILE_RELEASE_STRIP": "symbols"}
    env = {**os.environ, **(settings if profile == "release" else {})}
    options = ["--release"] if profile == "release" else ["--profile", profile]
    wanted = {**BINARIES, "torchrs_simulated_gpu": ["-p", "torchrs-simulated-gpu", "--lib"]}
    os.makedirs(folder, exist_ok=True)
    with tarfile.open(os.path.join(folder, "bin.tar.xz"), "w:xz") as archive:
        for name, arguments in wanted.items():
            add(archive, name, built(name, [*options, *arguments], env))
    warm = built("torchrs-warm", [*options, "-p", "torchrs-warm", "--bin", "torchrs-warm"], env)
    gpu_check_kernels.pack(ROOT, folder, warm)
    shutil.copytree(os.path.join(ROOT, "tests", "golden", "cases"), os.path.join(folder, "golden"), dirs_exist_ok=True)
    for pattern in ("scripts/gpu-check", "tools/gpu-check/*.py", "tools/bench/peer_*bench.py"):
        for script in glob.glob(pattern, root_dir=ROOT):
            os.makedirs(os.path.join(folder, os.path.dirname(script)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, script), os.path.join(folder, script))
    weigh(folder)


def built(name, arguments, env):
    """Builds something; its path."""
    command = ["cargo", "test", "--no-run"] if "--test" in arguments else ["cargo", "build"]
    command += [*arguments, "--message-format", "json-render-diagnostics"]
    print("$", " ".join(command), flush=True)
    output = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    artifacts = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    ours = [a for a in artifacts if a["reason"] == "compiler-artifact" and a["target"]["name"] == name]
    paths = [path for a in ours for path in [a["executable"]] + a["filenames"] if path]
    return next(path for path in paths if path.endswith(".so") or "." not in os.path.basename(path))


def add(archive, name, path):
    """Adds a program without its symbols."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, name)
        shutil.copyfile(path, copy)
        os.chmod(copy, 0o755)
        subprocess.run(["strip", copy], check=False)
        archive.add(copy, os.path.join("bin", SIMULATOR if path.endswith(".so") else name))
        print(f"    {os.path.getsize(copy) / 2**20:.1f} MiB", flush=True)


def weigh(folder):
    """Prints what is large, and fails where all is too large."""
    paths = [os.path.join(place, file) for place, _, files in os.walk(folder) for file in files]
    sizes = {path: os.path.getsize(path) / 2**20 for path in paths}
    for path, size in sorted(sizes.items(), key=lambda item: -item[1])[:10]:
        print(f"{size:7.1f} MiB {path}")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = [os.path.join(ROOT, name) for name in listed.split("\0") if name]
    room = LIMIT - sum(os.path.getsize(path) for path in tracked if os.path.isfile(path)) / 2**20
    total = sum(sizes.values())
    print(f"{total:7.1f} MiB in all, of {room:.1f} MiB that the checkout's files leave of {LIMIT}")
    if total > room:
        sys.exit(f"gpu-check: the pack is larger than {room:.1f} MiB")
