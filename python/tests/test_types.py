"""The stubs name what is there, and nothing else."""

import ast
import importlib
import pathlib
import unittest

import torchrs
from libraries import needs_torch


def stub_names(path):
    """Public names of a stub, and of each class in it."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            inner = [n.name for n in node.body if isinstance(n, ast.FunctionDef)]
            found[node.name] = {name for name in inner if not name.startswith("_")}
        elif isinstance(node, (ast.FunctionDef, ast.AnnAssign)):
            found[node.name if isinstance(node, ast.FunctionDef) else node.target.id] = None
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname: None for alias in node.names if alias.asname}
    return {name: inner for name, inner in found.items() if not name.startswith("_")}


class Stubs(unittest.TestCase):
    def names(self, module):
        folder = pathlib.Path(torchrs.__file__).parent
        real = torchrs if module == "__init__" else importlib.import_module(f"torchrs.{module}")
        stubs = stub_names(folder / f"{module}.pyi")
        public = set(getattr(real, "__all__", dir(real)))
        public = {name for name in public if not name.startswith("_")}
        self.assertEqual(public, set(stubs))
        for name, inner in stubs.items():
            if inner is not None and module == "_torchrs":
                self.assertEqual({n for n in vars(getattr(real, name)) if not n.startswith("_")}, inner, name)

    def test_names(self):
        for module in ("_torchrs", "__init__", "models", "data"):
            with self.subTest(module=module):
                self.names(module)

    @needs_torch
    def test_names_in_pytorch(self):
        self.names("torch")


if __name__ == "__main__":
    unittest.main()
