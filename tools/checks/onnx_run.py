"""Checks files of ONNX and runs them: a folder has NAME.onnx and NAME.safetensors with inputs and "output"."""

import glob, json, os, struct, sys

import numpy, onnx, onnxruntime

KINDS = {"F32": numpy.float32, "I64": numpy.int64}
# Of the largest result.
TOLERANCE = 2e-5


def tensors(path):
    """The tensors of a safetensors file."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            found[name] = numpy.frombuffer(data[start:end], KINDS[entry["dtype"]]).reshape(entry["shape"])
    return found


def check(path):
    """What is wrong with a model, or nothing."""
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = tensors(path.removesuffix("onnx") + "safetensors")
    want = inputs.pop("output")
    (got,) = session.run(None, inputs)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {got.shape}, not {want.dtype} {want.shape}"
    error = float(abs(got - want).max()) / max(float(abs(want).max()), 1e-3)
    # Rows of a batch by themselves: sizes that are free in the file.
    (one,) = session.run(None, {name: value[:1] for name, value in inputs.items()})
    apart = float(abs(one - want[:1]).max()) / max(float(abs(want).max()), 1e-3)
    if max(error, apart) > TOLERANCE:
        return f"differs by {error:.1e}, of one row {apart:.1e}"
    if next(iter(inputs.values())).dtype == numpy.int64 and want.ndim == 3:
        # What comes later changes nothing before: a shorter sequence.
        (short,) = session.run(None, {name: value[:, :5] for name, value in inputs.items()})
        shorter = float(abs(short - want[:, :5]).max())
        if shorter > TOLERANCE * max(float(abs(want).max()), 1e-3):
            return f"of five tokens differs by {shorter:.1e}"
    print(f"    {os.path.basename(path)}: {os.path.getsize(path) / 1e6:.1f} MB, differs by {error:.1e}")
    return None


def main():
    paths = sorted(glob.glob(os.path.join(sys.argv[1], "*.onnx")))
    faults = {path: fault for path in paths if (fault := check(path))}
    for path, fault in faults.items():
        print(f"check-onnx: {os.path.basename(path)}: {fault}", file=sys.stderr)
    print(f"{len(paths) - len(faults)} of {len(paths)} models compute the same in onnxruntime {onnxruntime.__version__}")
    sys.exit(1 if faults or not paths else 0)


main()
