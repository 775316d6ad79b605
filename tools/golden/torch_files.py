"""Writes the files of PyTorch and NumPy that tests/data/files/ reads.

    python tools/golden/torch_files.py tests/fixtures/files
"""

import argparse
import collections
import functools
import pathlib
import pickle
import shutil
import sys
import zipfile

import numpy as np
import torch
from torch import nn

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)

model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5])
model(torch.randn(4, 3)).sum().backward()
optimizer.step()
scheduler.step()

base = torch.arange(12.0).reshape(3, 4)
dtypes = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
nested = {
    "model": model.state_dict(),
    "optimizer": optimizer.state_dict(),
    "scheduler": scheduler.state_dict(),
    "epoch": 3,
    "lr": 0.1,
    "name": "täst",
    "list": [True, False, None, -5, 2**40, -(2**40), 300, 70000],
    "pair": (0.9, 0.999),
    "shape": torch.Size([2, 3]),
    "dtype": torch.float16,
    "bytes": b"\x00\xff",
    "set": {1},
    "counter": collections.Counter({2: 1}),
    "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
    "device": torch.device("cpu"),
    7: "number",
    "types": {d: torch.tensor([0, 1, 1, 0, 1]).to(getattr(torch, d)) for d in dtypes},
    "base": base,
    "part": base[1:, ::2],
    "turned": base.t(),
    "expanded": torch.tensor([5.0]).expand(2, 3),
    "empty": torch.zeros(0, 3),
    "scalar": torch.tensor(2.5),
    "parameter": nn.Parameter(torch.ones(2)),
}
torch.save(model.state_dict(), out / "model.pt")
torch.save(nested, out / "nested.pt")
torch.save(nested, out / "legacy.pt", _use_new_zipfile_serialization=False)
torch.save(nested, out / "protocol4.pt", pickle_protocol=4)
# What the optimizer does next.
model(torch.randn(4, 3)).square().sum().backward()
grads = [p.grad.clone() for p in model.parameters()]
before = [p.detach().clone() for p in model.parameters()]
state = pickle.loads(pickle.dumps(optimizer.state_dict()))
optimizer.step()
after = [p.detach().clone() for p in model.parameters()]
torch.save({"optimizer": state, "grads": grads, "before": before, "after": after}, out / "adam.pt")
torch.save({"x": torch.tensor([1 + 2j, 3]), "y": torch.tensor([4j], dtype=torch.complex128)}, out / "complex.pt")
torch.save({"x": torch.ones(2, dtype=torch.uint16)}, out / "unsigned.pt")
torch.save(model, out / "module.pt")


class Evil:
    def __reduce__(self):
        return (print, ("run by a file",))


torch.save({"x": Evil()}, out / "evil.pt")


def with_pickle(name, data):
    with zipfile.ZipFile(out / name, "w") as archive:
        archive.writestr("a/data.pkl", data)
        archive.writestr("a/version", "3\n")


# Lists of lists that double 40 times, and one in another 5000 times.
with_pickle("doubling.pt", b"\x80\x02]q\x00" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(40)) + b".")
with_pickle("deep.pt", b"\x80\x02" + b"(" * 5000 + b"t" * 5000 + b".")
# A list that has itself as an item.
with_pickle("cycle.pt", b"\x80\x02]q\x00h\x00a.")

numbers = np.arange(6).reshape(2, 3)
arrays = {d: numbers.astype(d) for d in ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"]}
arrays["scalar"] = np.float64(2.5)
arrays["empty"] = np.zeros((0, 3))
arrays["line"] = np.arange(3.0)
np.savez(out / "arrays.npz", **arrays)
np.savez_compressed(out / "packed.npz", zeros=np.zeros((100, 10)), **arrays)
np.save(out / "plain.npy", numbers.astype("f4"))
np.save(out / "fortran.npy", np.asfortranarray(numbers.astype("f8")))
np.save(out / "big_endian.npy", numbers.astype(">i4"))
np.save(out / "complex.npy", (numbers * 1j).astype("c8"))
np.save(out / "big_complex.npy", (numbers + 1j).astype(">c16"))
np.save(out / "unsigned.npy", numbers.astype("u4"))
np.save(out / "objects.npy", np.array([None, {}]), allow_pickle=True)
np.save(out / "fields.npy", np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]))

# Conjugates and negatives that PyTorch has not computed yet.
complexes = torch.tensor([1 + 2j, 3 - 1j, 0.5j])
marked = {
    "conj": complexes.conj(),
    # By themselves: PyTorch does not save what views the same memory as another type.
    "neg": complexes.clone().conj().imag,
    "twice": complexes.clone().conj().imag.neg(),
    "part": complexes.conj()[1:],
    "expanded": complexes.conj()[:1].expand(4),
    "parameter": nn.Parameter(complexes.conj()),
    "plain": complexes,
}
torch.save(marked, out / "marked.pt")
torch.save(marked, out / "marked_legacy.pt", _use_new_zipfile_serialization=False)


def as_if_big_endian(name, values):
    """Turns a file with these tensors into one of a machine whose numbers have their highest byte first."""
    with zipfile.ZipFile(out / name) as file:
        entries = {entry: file.read(entry) for entry in file.namelist()}
    stem = next(iter(entries)).split("/")[0]
    entries[f"{stem}/byteorder"] = b"big"
    for place, tensor in enumerate(values.values()):
        size = tensor.element_size() // (2 if tensor.is_complex() else 1)
        numbers = np.frombuffer(entries[f"{stem}/data/{place}"], f"V{size}")
        entries[f"{stem}/data/{place}"] = b"".join(number.tobytes()[::-1] for number in numbers)
    with zipfile.ZipFile(out / name, "w") as file:
        for entry, content in entries.items():
            file.writestr(entry, content)


signed = ["float64", "float32", "bfloat16", "int64", "int16"]
ordered = {d: torch.tensor([-2, 1, 300]).to(getattr(torch, d)) for d in signed}
ordered["complex64"] = torch.tensor([1 + 2j, -3j])
torch.save(ordered, out / "big_endian.pt")
as_if_big_endian("big_endian.pt", ordered)
shutil.copy(out / "unsigned.pt", out / "big_endian_unsigned.pt")
as_if_big_endian("big_endian_unsigned.pt", {"x": torch.ones(2, dtype=torch.uint16)})


# Objects of NumPy and of other classes beside tensors.
class Slots:
    __slots__ = ("a", "b")


class Listed(list):
    pass


class Named(dict):
    pass


slots, listed, named = Slots(), Listed([1, 2]), Named(x=3)
slots.a, slots.b, listed.note = 1, torch.ones(2), "kept"
foreign = {
    "tensor": torch.arange(3.0),
    "namespace": argparse.Namespace(lr=0.1, betas=(0.9, 0.99), weight=torch.ones(2, 2)),
    "slots": slots,
    "listed": listed,
    "named": named,
    "path": pathlib.PurePosixPath("a/b"),
    "class": nn.Linear,
    "module": nn.Linear(2, 1),
    "partial": functools.partial(print, 1),
    "sparse": torch.eye(2).to_sparse(),
    "quantized": torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8),
    "storage": torch.arange(3.0).untyped_storage(),
    "complex": 1 - 2j,
    "float64": np.float64(2.5),
    "float16": np.float16(0.5),
    "int64": np.int64(-3),
    "uint8": np.uint8(200),
    "uint64": np.uint64(2**64 - 1),
    "bool_": np.bool_(True),
    "complex64": np.complex64(1j),
    "str_": np.str_("täst"),
    "bytes_": np.bytes_(b"ab"),
    "datetime": np.datetime64("2020-01-01"),
    "array": np.arange(6.0).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "big": np.arange(3).astype(">i4"),
    "bools": np.array([True, False]),
    "empty": np.zeros((0, 3), "f4"),
    "zero_dim": np.array(1.5),
    "uint16": np.array([1, 65535], "u2"),
    "objects": np.array([None, {}]),
    "fields": np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]),
    "float8": torch.tensor([1.0, -448.0]).to(torch.float8_e4m3fn),
    "float8_view": torch.arange(6.0).to(torch.float8_e5m2).reshape(2, 3).t()[1:],
}
torch.save(foreign, out / "foreign.pt")
torch.save(foreign, out / "foreign5.pt", pickle_protocol=5)
del foreign["float8"], foreign["float8_view"], foreign["storage"]
torch.save(foreign, out / "foreign_legacy.pt", _use_new_zipfile_serialization=False)
