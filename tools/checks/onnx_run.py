"""Checks files of ONNX and runs them: beside NAME.onnx lie NAME-0.safetensors, NAME-1.safetensors and so on, each with
inputs and outputs by their names."""

import glob, json, os, struct, sys

import numpy, onnx, onnxruntime

KINDS = {"F32": numpy.float32, "I64": numpy.int64, "BOOL": numpy.bool_}
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


def differs(got, want):
    """How much results differ, of the largest; a text for other types and shapes."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {got.shape}, not {want.dtype} {want.shape}"
    if not numpy.isfinite(want).all():
        return "torchrs gives what is no number"
    if want.size == 0:
        return 0.0
    error = float(abs(got - want).max()) / max(float(abs(want).max()), 1e-3)
    return error if error == error else "onnxruntime gives what is no number"


def check(path):
    """How much a model differs at most, or what is wrong with it."""
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    cases = sorted(glob.glob(glob.escape(path.removesuffix(".onnx")) + "-[0-9].safetensors"))
    if len(cases) < 2:
        return "has less than two cases"
    worst = 0.0
    for case in cases:
        inputs = tensors(case)
        wanted = [inputs.pop(name) for name in names]
        for name, got, want in zip(names, session.run(None, inputs), wanted):
            error = differs(got, want)
            if isinstance(error, str):
                return f"{os.path.basename(case)} {name}: {error}"
            worst = max(worst, error)
    return worst


def main():
    paths = sorted(glob.glob(os.path.join(sys.argv[1], "*.onnx")))
    faults, worst = [], 0.0
    for path in paths:
        name = os.path.basename(path)
        try:
            result = check(path)
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        if isinstance(result, float) and result <= TOLERANCE:
            worst = max(worst, result)
            print(f"    {name}: {os.path.getsize(path) / 1e6:.1f} MB, differs by {result:.1e}")
        else:
            result = f"differs by {result:.1e}" if isinstance(result, float) else result
            faults.append(f"{name}: {result}")
    for fault in faults:
        print(f"check-onnx: {fault}", file=sys.stderr)
    print(
        f"{len(paths) - len(faults)} of {len(paths)} models compute the same in onnxruntime "
        f"{onnxruntime.__version__}; they differ by {worst:.1e} at most"
    )
    sys.exit(1 if faults or not paths else 0)


main()
