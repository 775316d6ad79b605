"""Examples in the package's own pages: docstrings, and the guide's from top to bottom."""

import doctest
import importlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from libraries import needs_torch

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "guide" / "python.md"


class Pages(unittest.TestCase):
    def docstring(self, module):
        found = doctest.testmod(importlib.import_module(module))
        self.assertEqual(found.failed, 0, module)
        self.assertGreater(found.attempted, 2, module)

    def test_docstrings(self):
        for module in ("torchrs", "torchrs.models", "torchrs.data"):
            with self.subTest(module=module):
                self.docstring(module)

    @needs_torch
    def test_docstrings_in_pytorch(self):
        self.docstring("torchrs.torch")

    @needs_torch
    def test_guide(self):
        text = GUIDE.read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        self.assertEqual(len(blocks), text.count("```python"))
        self.assertGreater(len(blocks), 2)
        with tempfile.TemporaryDirectory() as folder:
            # What the guide's loader reads.
            for kind in ("cats", "dogs"):
                os.makedirs(f"{folder}/train/{kind}")
                for n in range(3):
                    with open(f"{folder}/train/{kind}/{n}.ppm", "wb") as file:
                        file.write(b"P6 240 250 255\n" + bytes(3 * 240 * 250))
            code = "\n".join(blocks) + "\nprint('read to the end')\n"
            done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=600)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "read to the end\n", ""))


if __name__ == "__main__":
    unittest.main()
