"""Models that run in Rust, called with tensors of torchrs."""

import os
import tempfile
import unittest

import numpy as np

import torchrs
from torchrs import models

SMALL = dict(vocab_size=17, n_positions=8, n_embd=12, n_layer=2, n_head=3, resid_pdrop=0.0, embd_pdrop=0.0,
             attn_pdrop=0.0)


class Models(unittest.TestCase):
    def test_files(self):
        a, b = models.gpt2(**SMALL), models.gpt2(**SMALL)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            a.save(path)
            self.assertEqual(b.load(path), ([], []))
            with self.assertRaisesRegex(ValueError, "n_layer|missing|does not fit"):
                models.gpt2(**{**SMALL, "n_layer": 3}).load(path)
            with self.assertRaisesRegex(OSError, "none.safetensors"):
                b.load(os.path.join(folder, "none.safetensors"))
        tokens = torchrs.arange(6).reshape(1, 6)
        self.assertEqual(a.eval()(tokens).tolist(), b.eval()(tokens).tolist())
        state = [(name, tensor) for name, tensor in a.state_dict().items()]
        self.assertEqual(b.load_state_dict(state[:-1], strict=False)[0], [state[-1][0]])
        self.assertEqual(b.load_state_dict(a.state_dict()), ([], []))

    def test_settings(self):
        with self.assertRaisesRegex(ValueError, "n_layers"):
            models.gpt2(n_layers=2)
        with self.assertRaisesRegex(ValueError, "resnet17"):
            torchrs._torchrs.image_model("resnet17", 3)
        model = models.gpt2({"architectures": ["GPT2LMHeadModel"], **SMALL}, n_layer=1)
        self.assertFalse(any(".h.1." in name for name, _ in model.named_parameters()))
        self.assertIn("GPT2", repr(model))

    def test_errors_of_forward(self):
        model = models.gpt2(**SMALL)
        with self.assertRaisesRegex(ValueError, "n_positions|longest|8"):
            model(torchrs.zeros(1, 9, dtype="int64"))
        with self.assertRaisesRegex(TypeError, "from_dlpack"):
            model(np.zeros((1, 2), "int64"))


if __name__ == "__main__":
    unittest.main()
