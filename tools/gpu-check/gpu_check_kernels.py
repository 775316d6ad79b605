"""Compiled kernels in the pack of gpu-check, so that its minutes on a GPU go to measuring: which programs are compiled for
which architectures, and where a machine finds them."""

import glob, os, subprocess, sys, tarfile, tempfile

# NVIDIA's GPUs for training from A100 on; what the compiler at hand does not know is left out, and said.
ARCHITECTURES = ["sm_80", "sm_90a", "sm_100a", "sm_120a"]
PACKED, FOLDER = "kernels.tar.xz", "packed-kernels"
# Where tools/checks/check-kernels installs the compiler.
COMPILER = "nvrtc/lib/python3*/site-packages/nvidia/*/lib"


def pack(root, folder, warm):
    """Compiles the kernels with the program `torchrs-warm` into the pack."""
    target = os.path.join(root, os.environ.get("CARGO_TARGET_DIR", "target"))
    folders = [*filter(None, [os.environ.get("TORCHRS_CUDA_PATH")]), *glob.glob(os.path.join(target, COMPILER))]
    env = {**os.environ, "TORCHRS_CUDA_PATH": ":".join(folders)}
    # The host's compiler, which stands in for simulated GPUs, makes no code for real ones.
    env.pop("TORCHRS_SIMULATE_GPUS", None)
    path = os.path.join(folder, PACKED)
    if os.path.exists(path):
        os.remove(path)
    with tempfile.TemporaryDirectory() as kernels:
        command = [warm, "--architectures", ",".join(ARCHITECTURES), "--folder", kernels]
        print("$", " ".join(command), flush=True)
        status = subprocess.run(command, env=env).returncode
        files = sorted(glob.glob(os.path.join(kernels, "*.cubin")))
        if not files:
            print(f"gpu-check: no kernels in the pack (status {status}): they will be compiled on the machine;")
            print("    `tools/checks/check-kernels --if-possible` installs NVRTC under target/")
            return
        with tarfile.open(path, "w:xz") as archive:
            for file in files:
                archive.add(file, os.path.join(FOLDER, os.path.basename(file)))
        if status not in (0, 1):
            sys.exit(f"gpu-check: {os.path.basename(warm)} ended with status {status}")
    print(f"    {len(files)} compiled kernels, {os.path.getsize(path) / 2**20:.1f} MiB", flush=True)


def unpacked(root, work):
    """The folder of the pack's kernels on the machine, or none where the pack has none."""
    path = os.path.join(root, PACKED)
    if not os.path.exists(path):
        return None
    with tarfile.open(path) as archive:
        # Of the pack's own making; older versions of Python know no filter.
        archive.extractall(work, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return os.path.join(work, FOLDER)


def environment(folder):
    """What lets torchrs' programs read a folder of compiled kernels."""
    if folder is None:
        return {}
    return {"TORCHRS_KERNEL_PACK": ":".join(filter(None, [os.environ.get("TORCHRS_KERNEL_PACK"), folder]))}


def compiled(folder):
    """How many programs were compiled into a folder."""
    return len(glob.glob(os.path.join(glob.escape(folder), "*.cubin")))
