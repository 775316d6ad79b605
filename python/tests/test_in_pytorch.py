"""Models that run in Rust, inside PyTorch."""

import unittest

import torchrs
from libraries import lacking, torch
from test_models import SMALL
from torchrs import models

if torch is None:
    raise unittest.SkipTest(lacking)
import torchrs.torch


class Reference(torch.nn.Module):
    """ResNet-18 in PyTorch, with a module's weights: what the model of Rust is compared with."""

    def __init__(self, module):
        super().__init__()
        state = module.state_dict()
        self.state = {name: tensor.detach().clone().requires_grad_(tensor.is_floating_point() and "running" not in name)
                      for name, tensor in state.items()}

    def forward(self, x):
        s, F = self.state, torch.nn.functional

        def norm(x, name):
            return F.batch_norm(x, s[name + ".running_mean"].clone(), s[name + ".running_var"].clone(),
                                s[name + ".weight"], s[name + ".bias"], training=self.training)

        x = F.max_pool2d(F.relu(norm(F.conv2d(x, s["conv1.weight"], stride=2, padding=3), "bn1")), 3, 2, 1)
        for layer in range(1, 5):
            for block in range(2):
                name = f"layer{layer}.{block}."
                stride = 2 if layer > 1 and block == 0 else 1
                y = F.relu(norm(F.conv2d(x, s[name + "conv1.weight"], stride=stride, padding=1), name + "bn1"))
                y = norm(F.conv2d(y, s[name + "conv2.weight"], padding=1), name + "bn2")
                if stride == 2:
                    x = norm(F.conv2d(x, s[name + "downsample.0.weight"], stride=2), name + "downsample.1")
                x = F.relu(x + y)
        return F.linear(x.mean((2, 3)), s["fc.weight"], s["fc.bias"])


class InPyTorch(unittest.TestCase):
    def test_forward_and_gradients_are_pytorchs(self):
        torchrs.manual_seed(0)
        model = torchrs.torch.Module(models.resnet18(5))
        reference = Reference(model)
        torch.manual_seed(0)
        for train in (True, False):
            model.train(train), reference.train(train)
            model.zero_grad()
            for tensor in reference.state.values():
                tensor.grad = None
            x = torch.randn(3, 3, 40, 40)
            a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
            # Both before the running statistics of the one are changed by it.
            theirs = reference(b) if not train else None
            ours = model(a)
            theirs = reference(b) if theirs is None else theirs
            self.assertTrue(torch.allclose(ours, theirs, atol=1e-4), (ours - theirs).abs().max())
            (ours ** 2).sum().backward()
            (theirs ** 2).sum().backward()
            self.assertTrue(torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-3 * float(b.grad.abs().max())))
            for name, p in model.named_parameters():
                want = reference.state[name].grad
                scale = float(want.abs().max())
                self.assertTrue(torch.allclose(p.grad, want, rtol=1e-3, atol=2e-3 * scale + 1e-6), name)
            reference = Reference(model)

    def test_an_optimizer_of_pytorch_trains_the_rust_model(self):
        torchrs.manual_seed(1)
        rust = models.gpt2(**SMALL)
        model = torchrs.torch.Module(rust)
        self.assertIs(model.get_parameter("lm_head.weight"), model.get_parameter("transformer.wte.weight"))
        self.assertEqual(len(list(model.parameters())), len(rust.named_parameters()))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        tokens = torch.arange(8).repeat(2, 1)
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            scores = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.2 * losses[0])
        # The Rust model has the trained numbers.
        ours = torch.from_dlpack(rust(torchrs.from_dlpack(tokens[:, :-1])).detach())
        self.assertTrue(torch.equal(ours, model(tokens[:, :-1])))

    def test_misuse(self):
        model = torchrs.torch.Module(models.gpt2(**SMALL))
        tokens = torch.arange(4)[None]
        out = model(tokens)
        with torch.no_grad():
            next(model.parameters()).add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            out.sum().backward()
        out = model(tokens)
        out.sum().backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "forward again"):
            out.sum().backward()
        with self.assertRaisesRegex(RuntimeError, "cannot move"):
            model.double()
        model = torchrs.torch.Module(models.gpt2(**SMALL))
        model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
        with self.assertRaisesRegex(RuntimeError, "memory of its own"):
            model(tokens)
        with self.assertRaisesRegex(TypeError, "torchrs.Model"):
            torchrs.torch.Module(torch.nn.Linear(1, 1))
        with torch.no_grad():
            self.assertFalse(torchrs.torch.Module(models.gpt2(**SMALL))(tokens).requires_grad)


if __name__ == "__main__":
    unittest.main()
