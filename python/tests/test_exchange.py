"""Memory shared with NumPy and PyTorch: addresses, lives, dtypes, strides, what is empty, what may not be written."""

import functools
import gc
import sys
import threading
import unittest

import numpy as np

import torchrs
from libraries import LIBRARIES, address, needs_torch, torch

NUMPY = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128"]
TORCH = [*NUMPY, "bfloat16"]

# Views of a 4 x 6 array, in all libraries alike.
VIEWS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.T if isinstance(x, np.ndarray) else x.t(),
    "columns": lambda x: x[:, 1:4],
    "a row": lambda x: x[2],
    "every other": lambda x: x.reshape(2, 2, 2, 3)[:, 0, :, 0],
    "one": lambda x: x[3, 5:6].reshape(()),
    "none": lambda x: x[4:, :],
    "expanded": lambda x: np.broadcast_to(x[0], (3, 6)) if isinstance(x, np.ndarray) else x[0].expand(3, 6),
}


def made(library, dtype, view):
    """The view of 0, 1, ... 23 in a library's own memory."""
    rows = [[n % 2 if dtype == "bool" else n for n in range(start, start + 6)] for start in range(0, 24, 6)]
    named = dtype if library in (np, torchrs) else getattr(torch, dtype)
    whole = np.array(rows, named) if library is np else library.tensor(rows, dtype=named)
    return VIEWS[view](whole)


def steps(x):
    """Distances in elements along the dimensions that have more than one."""
    strides = x.stride() if hasattr(x, "stride") else x.strides
    size = x.itemsize if isinstance(x, np.ndarray) else 1
    return [step // size for step, n in zip(strides, x.shape) if n > 1] if 0 not in x.shape else []


def each(dtypes):
    """A test of one dtype, one view and the view's elements becomes one of all dtypes and views."""

    def over_all(test):
        @functools.wraps(test)
        def run(self):
            for dtype in dtypes:
                for view in VIEWS:
                    with self.subTest(dtype=dtype, view=view):
                        test(self, dtype, view, made(np, "float64" if dtype == "bfloat16" else dtype, view).tolist())

        return run

    return over_all


class Dtypes(unittest.TestCase):
    @each(NUMPY)
    def test_from_numpy(self, dtype, view, elements):
        x = made(np, dtype, view)
        y = torchrs.from_dlpack(x)
        self.assertEqual((y.dtype, y.shape, y.tolist(), steps(y)), (dtype, x.shape, elements, steps(x)))
        if x.size:
            self.assertEqual(y.data_ptr(), address(x))

    @each(NUMPY)
    def test_to_numpy(self, dtype, view, elements):
        x = made(torchrs, dtype, view)
        for y in (x.numpy(), np.from_dlpack(x), np.asarray(x)):
            self.assertEqual((str(y.dtype), y.shape, y.tolist(), steps(y)), (dtype, x.shape, elements, steps(x)))
            self.assertTrue(y.flags.writeable)
            if y.size:
                self.assertEqual(address(y), x.data_ptr())

    @needs_torch
    @each(TORCH)
    def test_from_torch(self, dtype, view, elements):
        x = made(torch, dtype, view)
        y = torchrs.from_dlpack(x)
        self.assertEqual((y.dtype, y.shape, y.tolist(), steps(y)), (dtype, x.shape, elements, steps(x)))
        # And back.
        z = torch.from_dlpack(y)
        self.assertTrue(torch.equal(x, z) and z.dtype == x.dtype)
        if x.numel():
            self.assertEqual({y.data_ptr(), z.data_ptr()}, {x.data_ptr()})

    @needs_torch
    @each(TORCH)
    def test_to_torch(self, dtype, view, elements):
        x = made(torchrs, dtype, view)
        y = torch.from_dlpack(x)
        self.assertEqual((str(y.dtype), y.shape, y.tolist(), steps(y)),
                         ("torch." + dtype, x.shape, elements, steps(x)))
        if y.numel():
            self.assertEqual(y.data_ptr(), x.data_ptr())

    @each(NUMPY)
    def test_read_only(self, dtype, view, elements):
        x = made(np, dtype, view)
        x.flags.writeable = False
        y = torchrs.from_dlpack(x)
        self.assertEqual((y.is_read_only, y.dtype, y.tolist()), (True, dtype, elements))
        # NumPy heeds that memory is read-only, and has it; by DLPack it gets a copy, as all do.
        for z in (y.numpy(), np.asarray(y)):
            self.assertEqual((z.flags.writeable, z.tolist(), steps(z)), (False, elements, steps(x)))
            if z.size:
                self.assertEqual(address(z), address(x))
        for library in LIBRARIES:
            z = library.from_dlpack(y)
            self.assertEqual((z.shape, z.tolist()), (x.shape, elements))
            if x.size:
                self.assertNotEqual(address(z), address(x))
            z[...] = 1
        self.assertEqual((x.tolist(), y.tolist()), (elements, elements))

    def test_what_no_tensor_has(self):
        for x, word in [
            (np.arange(4)[::-1], "never negative"),
            (np.arange(4, dtype="uint32"), "unsigned integers of 32 bits"),
            (np.array([2], "uint8").view("bool"), "truth value"),
        ]:
            with self.subTest(word=word):
                owners = sys.getrefcount(x)
                with self.assertRaisesRegex((ValueError, TypeError), word):
                    torchrs.from_dlpack(x)
                # What was refused was given back, once.
                self.assertEqual(sys.getrefcount(x), owners)

    def test_numpy_has_no_bfloat16(self):
        x = torchrs.ones(2, dtype="bfloat16")
        for convert in (np.asarray, np.array, torchrs.Tensor.numpy):
            with self.assertRaisesRegex(TypeError, "bf16"):
                convert(x)


class Writes(unittest.TestCase):
    def test_all_see_a_write(self):
        x = torchrs.zeros(2, 3)
        takers = [x.numpy(), np.asarray(x), *(library.from_dlpack(x) for library in LIBRARIES)]
        takers[-1][0, 0] = 1
        takers[0][0, 1] = 2
        takers[1][0, 2] = 3
        x[1].fill_(4)
        for y in (x, *takers):
            self.assertEqual(y.tolist(), [[1, 2, 3], [4, 4, 4]])

    def test_copies(self):
        x = torchrs.ones(3)
        self.assertNotEqual(address(x.clone().numpy()), x.data_ptr())
        for library in (*LIBRARIES, torchrs):
            self.assertNotEqual(address(library.from_dlpack(x, copy=True)), x.data_ptr())
            self.assertEqual(address(library.from_dlpack(x, copy=False)), x.data_ptr())
            y = library.ones(3)
            self.assertNotEqual(torchrs.from_dlpack(y, copy=True).data_ptr(), address(y))
            self.assertEqual(torchrs.from_dlpack(y, copy=False).data_ptr(), address(y))

    def test_read_only(self):
        x = np.arange(4.0)
        x.flags.writeable = False
        y = torchrs.from_dlpack(x)
        self.assertTrue(y.is_read_only and y.data_ptr() == address(x))
        for write in (lambda: y.fill_(0), lambda: y[1:].add_(1), lambda: y.copy_(torchrs.ones(4)),
                      lambda: y.detach().mul_(2)):
            with self.assertRaisesRegex(ValueError, "read-only"):
                write()
        # Without a copy it is not lent.
        for library in LIBRARIES:
            with self.assertRaisesRegex(BufferError, "read-only"):
                library.from_dlpack(y, copy=False)
        with self.assertRaisesRegex(BufferError, "read-only"):
            y.__dlpack__(copy=False)
        y.clone().fill_(1)
        self.assertEqual(x.tolist(), [0, 1, 2, 3])

    @needs_torch
    def test_read_only_never_reaches_pytorch(self):
        import torchrs.torch as in_torch

        x = np.arange(4.0)
        x.flags.writeable = False
        y = torchrs.from_dlpack(x)
        for take in (torch.from_dlpack, torch.as_tensor, torch.asarray, torch.tensor, in_torch.to_torch,
                     lambda y: torch.from_dlpack(y[1:3]), lambda y: torch.from_dlpack(y.detach()),
                     lambda y: torch.from_dlpack(torchrs.from_dlpack(y.numpy())),
                     lambda y: torch.from_dlpack(y.__dlpack__()),
                     lambda y: torch.from_dlpack(y.__dlpack__(max_version=(1, 1)))):
            take(y).fill_(7)
            self.assertEqual((x.tolist(), y.tolist()), ([0, 1, 2, 3], [0, 1, 2, 3]))


class Lives(unittest.TestCase):
    def test_the_consumer_outlives_the_producer(self):
        for take in (torchrs.Tensor.numpy, np.asarray, *(library.from_dlpack for library in LIBRARIES)):
            x = torchrs.full((1000,), 3.0)
            y = take(x)
            del x
            gc.collect()
            others = [torchrs.zeros(1000) for _ in range(10)]
            self.assertEqual(float(y.sum()), 3000.0)
            del others
        for library in LIBRARIES:
            x = library.ones(1000)
            y = torchrs.from_dlpack(x)
            del x
            gc.collect()
            others = [library.zeros(1000) for _ in range(10)]
            self.assertEqual((y.sum().item(), (y + 1).tolist()), (1000, [2] * 1000))
            del others

    def test_the_producer_is_freed_when_the_consumer_goes(self):
        freed = []

        class Array(np.ndarray):
            def __del__(self):
                freed.append(threading.get_ident())

        x = np.zeros(4, "float32").view(Array)
        y = torchrs.from_dlpack(x)
        part = y[1:3]
        del x, y
        gc.collect()
        self.assertEqual((freed, part.tolist()), ([], [0, 0]))
        thread = threading.Thread(target=lambda held: held.clear(), args=([part],))
        del part
        thread.start()
        thread.join()
        self.assertEqual(len(freed), 1)

    def test_capsules(self):
        x = torchrs.ones(2)
        x.__dlpack__(max_version=(1, 0))
        x.__dlpack__()  # nobody takes them
        capsule = x.__dlpack__(max_version=(1, 1))
        self.assertIn('"dltensor_versioned"', repr(capsule))
        y = torchrs.from_dlpack(capsule)
        self.assertIn("used_dltensor_versioned", repr(capsule))
        with self.assertRaisesRegex(ValueError, "taken already"):
            torchrs.from_dlpack(capsule)
        self.assertEqual(y.data_ptr(), x.data_ptr())
        old = x.__dlpack__()
        self.assertIn('"dltensor"', repr(old))
        z = torchrs.from_dlpack(old)
        self.assertIn("used_dltensor", repr(old))
        del x, y
        self.assertEqual(z.tolist(), [1, 1])

    @needs_torch
    def test_capsules_in_pytorch(self):
        x = torchrs.ones(2)
        for capsule in (x.__dlpack__(), x.__dlpack__(max_version=(1, 1))):
            y = torch.utils.dlpack.from_dlpack(capsule)
            self.assertEqual((y.data_ptr(), y.tolist()), (x.data_ptr(), [1, 1]))

    def test_an_old_producer(self):
        class Old:
            def __init__(self, array):
                self.array = array

            def __dlpack_device__(self):
                return (1, 0)

            def __dlpack__(self, stream=None):
                return self.array.__dlpack__()

        x = np.arange(3.0)
        self.assertEqual(torchrs.from_dlpack(Old(x)).data_ptr(), address(x))
        self.assertNotEqual(torchrs.from_dlpack(Old(x), copy=True).data_ptr(), address(x))

    def test_threads(self):
        x = torchrs.randn(256, 256)
        errors = []

        def work():
            try:
                for _ in range(50):
                    for library in LIBRARIES:
                        y = library.from_dlpack(x @ x)
                        torchrs.from_dlpack(y).sum().item()
            except Exception as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(errors, [])


class Refusals(unittest.TestCase):
    def test_gradients_do_not_pass(self):
        x = torchrs.ones(2, requires_grad=True)
        for library in LIBRARIES:
            with self.assertRaisesRegex(BufferError, "detach"):
                library.from_dlpack(x)
            self.assertEqual(library.from_dlpack(x.detach()).tolist(), [1, 1])
        with self.assertRaisesRegex(TypeError, "detach"):
            np.asarray(x)

    @needs_torch
    def test_gradients_of_pytorch_do_not_pass(self):
        with self.assertRaises(BufferError):
            torchrs.from_dlpack(torch.ones(2, requires_grad=True))

    def test_devices(self):
        x = torchrs.ones(2)
        self.assertEqual(x.__dlpack_device__(), (1, 0))
        x.__dlpack__(dl_device=(1, 0), stream=-1)
        with self.assertRaisesRegex(BufferError, "device"):
            x.__dlpack__(dl_device=(2, 0))
        with self.assertRaisesRegex(BufferError, "stream"):
            x.__dlpack__(stream=5)
        with self.assertRaisesRegex(TypeError, "__dlpack_device__"):
            torchrs.from_dlpack([1, 2])

    def test_errors_have_our_message(self):
        x, y = torchrs.ones(2), torchrs.ones(3)
        with self.assertRaisesRegex(ValueError, r"\[2\].*\[3\]"):
            x + y
        with self.assertRaisesRegex(TypeError, "unsupported operand"):
            x + "a"
        with self.assertRaisesRegex(ValueError, "ambiguous"):
            bool(x)
        for wrong in (2, (0, 0), (..., ...), (slice(None), ..., slice(None))):
            with self.subTest(wrong=wrong), self.assertRaises(IndexError):
                x[wrong]
        # That would be a mask.
        with self.assertRaises(TypeError):
            x[True]
        self.assertEqual([v.item() for v in x], [1, 1])


class Arithmetic(unittest.TestCase):
    @needs_torch
    def test_against_torch(self):
        ours = torchrs.tensor([[1, 2], [3, 4]], "float32")
        theirs = torch.tensor([[1, 2], [3, 4]], dtype=torch.float32)
        for f in (lambda x: x + 1, lambda x: 2 - x, lambda x: x * x.t(), lambda x: 1 / x,
                  lambda x: x @ x, lambda x: -x, lambda x: x.sum(), lambda x: x.mean(), lambda x: x.reshape(4)[1:3],
                  lambda x: x.permute(1, 0), lambda x: x[..., 0], lambda x: x[-1, 1],
                  lambda x: x == x.t(), lambda x: x != 2, lambda x: 2 < x, lambda x: x <= 2, lambda x: x >= x.t()):
            self.assertEqual(f(ours).tolist(), f(theirs).tolist())
        for dtype, number in [("int64", 1.5), ("int64", True), ("float32", 2), ("bool", 3), ("float16", 0.1)]:
            a, b = torchrs.ones(2, dtype=dtype) * number, torch.ones(2, dtype=getattr(torch, dtype)) * number
            self.assertEqual(("torch." + a.dtype, a.tolist()), (str(b.dtype), b.tolist()))

    def test_numbers_of_numpy_and_arrays_are_told_apart(self):
        x = torchrs.ones(2, dtype="int64")
        self.assertEqual([(x * n).dtype for n in (np.int64(2), np.True_, np.float32(2))], ["int64", "int64", "float32"])
        self.assertEqual([torchrs.tensor([np.int8(3)]).dtype, torchrs.arange(np.int64(3)).shape], ["int64", (3,)])
        self.assertEqual(x.fill_(2**53 + 1).tolist(), [2**53 + 1] * 2)
        # An array of one element is no number, whose shape would be lost: NumPy, which is asked next, keeps it.
        product = torchrs.ones(2) * np.ones((1, 1))
        self.assertEqual((type(product), product.tolist()), (np.ndarray, [[1, 1]]))
        for wrong in (lambda: x + 2**70, lambda: torchrs.full((2,), 2**70), lambda: torchrs.full((2,), 1j)):
            with self.assertRaises(TypeError):
                wrong()
        self.assertIn(x, {x: 1})

    def test_truth_values_of_numpy(self):
        for x, dtype, elements in [
            (torchrs.tensor([np.True_, False]), "bool", [True, False]),
            (torchrs.tensor([np.True_, 2]), "int64", [1, 2]),
            (torchrs.full((2,), np.True_), "bool", [True, True]),
        ]:
            self.assertEqual((x.dtype, x.tolist()), (dtype, elements))

    def test_whole_numbers_that_do_not_fit(self):
        for number, dtype in [(300, "uint8"), (-256, "uint8"), (200, "int8"), (2**15, "int16"), (-(2**31) - 1, "int32")]:
            with self.assertRaisesRegex(ValueError, f"{number} does not fit {dtype}"):
                torchrs.tensor([[0, number]], dtype)
            with self.assertRaisesRegex(ValueError, f"{number} does not fit {dtype}"):
                torchrs.full((2,), number, dtype=dtype)
        self.assertEqual(torchrs.tensor([-1, 255, True], "uint8").tolist(), [255, 255, 1])
        self.assertEqual(torchrs.tensor([-128, 127], "int8").tolist(), [-128, 127])

    def test_complex_numbers_among_others(self):
        x = torchrs.tensor([1, 2.5, True, 3 - 4j, np.complex64(1j)])
        self.assertEqual((x.dtype, x.tolist()), ("complex64", [1, 2.5, 1, 3 - 4j, 1j]))
        self.assertEqual(torchrs.tensor([[1, 2]], "complex128").tolist(), [[1, 2]])
        for number in (1j, np.complex64(1j)):
            with self.assertRaisesRegex(TypeError, "float32 has no imaginary part"):
                torchrs.tensor([1, number], "float32")
        with self.assertRaises(TypeError):
            torchrs.tensor(["1j"], "complex64")

    @needs_torch
    def test_tensors_of_pytorch_are_no_numbers(self):
        for one in (torch.ones(1, 1), torch.ones(())):
            with self.assertRaises(TypeError):
                torchrs.ones(2) * one

    def test_gradients(self):
        x = torchrs.tensor([1.0, 2.0]).requires_grad_()
        (x * x * 3).sum().backward()
        self.assertEqual(x.grad.tolist(), [6, 12])
        (only,) = torchrs.grad([(x * 5).sum()], [x])
        self.assertEqual(only.tolist(), [5, 5])
        with torchrs.no_grad():
            self.assertFalse((x * 2).requires_grad)
        self.assertTrue((x * 2).requires_grad)


if __name__ == "__main__":
    unittest.main()
