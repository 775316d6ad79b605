"""Memory shared with NumPy and PyTorch: addresses, lives, dtypes, strides, what is empty, what may not be written."""

import gc
import sys
import threading
import unittest

import numpy as np
import torch

import torchrs

NUMPY = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128"]
TORCH = [*NUMPY, "bfloat16"]

# Views of a 4 x 6 array, by both libraries' names for them.
VIEWS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.T,
    "columns": lambda x: x[:, 1:4],
    "a row": lambda x: x[2],
    "every other": lambda x: x[::2, ::3],
    "one": lambda x: x[3, 5:6].reshape(()),
    "none": lambda x: x[4:, :],
    "expanded": None,
}


def address(x):
    return x.__array_interface__["data"][0] if isinstance(x, np.ndarray) else x.data_ptr()


def numpy_array(dtype, view):
    x = (np.arange(24).reshape(4, 6) % 2 if dtype == "bool" else np.arange(24).reshape(4, 6)).astype(dtype)
    return np.broadcast_to(x[0], (3, 6)) if VIEWS[view] is None else VIEWS[view](x)


def torch_tensor(dtype, view):
    x = (torch.arange(24).reshape(4, 6) % 2 if dtype == "bool" else torch.arange(24).reshape(4, 6))
    x = x.to(getattr(torch, dtype))
    return x[0].expand(3, 6) if VIEWS[view] is None else VIEWS[view](x)


class Dtypes(unittest.TestCase):
    def test_from_numpy(self):
        for dtype in NUMPY:
            for view in VIEWS:
                with self.subTest(dtype=dtype, view=view):
                    x = numpy_array(dtype, view)
                    y = torchrs.from_dlpack(x)
                    self.assertEqual((y.dtype, y.shape), (dtype, x.shape))
                    self.assertEqual(y.tolist(), x.tolist())
                    if x.size:
                        self.assertEqual(y.data_ptr(), address(x))

    def test_to_numpy(self):
        for dtype in NUMPY:
            for view in VIEWS:
                with self.subTest(dtype=dtype, view=view):
                    x = torchrs.from_dlpack(torch_tensor(dtype, view))
                    for y in (x.numpy(), np.from_dlpack(x), np.asarray(x)):
                        self.assertEqual((str(y.dtype), y.shape), (dtype, x.shape))
                        self.assertEqual(y.tolist(), x.tolist())
                        if y.size:
                            self.assertEqual(address(y), x.data_ptr())
                        if y.size > 1:
                            steps = tuple(s // y.itemsize for s in y.strides)
                            self.assertEqual([s for s, n in zip(steps, y.shape) if n > 1],
                                             [s for s, n in zip(x.strides, y.shape) if n > 1])

    def test_with_torch(self):
        for dtype in TORCH:
            for view in VIEWS:
                with self.subTest(dtype=dtype, view=view):
                    x = torch_tensor(dtype, view)
                    y = torchrs.from_dlpack(x)
                    z = torch.from_dlpack(y)
                    self.assertEqual((y.dtype, y.shape), (dtype, tuple(x.shape)))
                    self.assertTrue(torch.equal(x, z) and z.dtype == x.dtype)
                    if x.numel():
                        self.assertEqual({y.data_ptr(), z.data_ptr()}, {x.data_ptr()})
                        self.assertEqual([s for s, n in zip(z.stride(), z.shape) if n > 1],
                                         [s for s, n in zip(x.stride(), x.shape) if n > 1])

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
        a, b, c = x.numpy(), np.from_dlpack(x), torch.from_dlpack(x)
        c[0, 0] = 1
        a[0, 1] = 2
        b[0, 2] = 3
        x[1].fill_(4)
        for y in (x, a, b, c):
            self.assertEqual(y.tolist(), [[1, 2, 3], [4, 4, 4]])

    def test_copies(self):
        x = torchrs.ones(3)
        for y in (np.from_dlpack(x, copy=True), torch.from_dlpack(x, copy=True), x.clone().numpy()):
            self.assertNotEqual(address(y), x.data_ptr())
        for y in (np.ones(3), torch.ones(3), torchrs.ones(3)):
            self.assertNotEqual(torchrs.from_dlpack(y, copy=True).data_ptr(), address(y))
            self.assertEqual(torchrs.from_dlpack(y, copy=False).data_ptr(), address(y))
        self.assertEqual(address(np.from_dlpack(x, copy=False)), x.data_ptr())

    def test_read_only_numpy(self):
        x = np.arange(4.0)
        x.flags.writeable = False
        y = torchrs.from_dlpack(x)
        self.assertTrue(y.is_read_only and y.data_ptr() == address(x))
        for write in (lambda: y.fill_(0), lambda: y[1:].add_(1), lambda: y.copy_(torchrs.ones(4)),
                      lambda: y.detach().mul_(2)):
            with self.assertRaisesRegex(ValueError, "read-only"):
                write()
        # NumPy heeds it. PyTorch does not, and gets a copy, or nothing.
        self.assertFalse(y.numpy().flags.writeable)
        self.assertEqual(address(y.numpy()), address(x))
        z = torch.from_dlpack(y)
        z.fill_(7)
        np.from_dlpack(y)
        self.assertEqual((x.tolist(), y.tolist()), ([0, 1, 2, 3], [0, 1, 2, 3]))
        with self.assertRaisesRegex(BufferError, "read-only"):
            torch.from_dlpack(y, copy=False)
        with self.assertRaisesRegex(BufferError, "read-only"):
            y.__dlpack__(copy=False)
        torch.from_dlpack(y.__dlpack__()).fill_(8)
        self.assertEqual(x.tolist(), [0, 1, 2, 3])
        y.clone().fill_(1)


class Lives(unittest.TestCase):
    def test_the_consumer_outlives_the_producer(self):
        for take in (np.from_dlpack, np.asarray, torch.from_dlpack):
            x = torchrs.full((1000,), 3.0)
            y = take(x)
            del x
            gc.collect()
            others = [torchrs.zeros(1000) for _ in range(10)]
            self.assertEqual(float(y.sum()), 3000.0)
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
        # PyTorch's storage goes with the last taker.
        x = torch.ones(4)
        y = torchrs.from_dlpack(x)
        del x
        gc.collect()
        self.assertEqual((y + 1).tolist(), [2, 2, 2, 2])

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
        z = torch.utils.dlpack.from_dlpack(old)
        del x, y
        self.assertEqual(z.tolist(), [1, 1])

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
                    y = torch.from_dlpack(x @ x)
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
        for take in (torch.from_dlpack, np.from_dlpack):
            with self.assertRaisesRegex(BufferError, "detach"):
                take(x)
        with self.assertRaisesRegex(TypeError, "detach"):
            np.asarray(x)
        self.assertEqual(torch.from_dlpack(x.detach()).tolist(), [1, 1])
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
        # An array of one element is no number, whose shape would be lost.
        with self.assertRaises(TypeError):
            x * torch.ones(1, 1)
        for wrong in (lambda: x + 2**70, lambda: torchrs.full((2,), 2**70), lambda: torchrs.full((2,), 1j)):
            with self.assertRaises(TypeError):
                wrong()
        self.assertIn(x, {x: 1})

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
