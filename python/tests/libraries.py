"""The libraries that tests exchange memory with: NumPy, and PyTorch where it is."""

import unittest

import numpy as np

try:
    import torch

    lacking = None
except (ImportError, OSError) as error:
    is_absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
    torch, lacking = None, "PyTorch is not installed" if is_absent else f"PyTorch cannot be imported: {error}"

# Of a test, or of a class of them.
needs_torch = unittest.skipIf(torch is None, lacking)

# Those that are here.
LIBRARIES = [np] if torch is None else [np, torch]


def address(x):
    """Where the elements of an array or tensor begin."""
    return x.__array_interface__["data"][0] if isinstance(x, np.ndarray) else x.data_ptr()
