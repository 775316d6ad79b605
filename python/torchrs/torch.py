"""torchrs's models and loaders in PyTorch: `Module` is a `torch.nn.Module` whose forward and backward run in Rust,
`DataLoader` gives PyTorch's tensors. Memory is shared in both directions.

>>> import torch, torchrs.torch
>>> from torchrs import models
>>> model = torchrs.torch.Module(models.resnet18(10))
>>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
>>> model(torch.randn(4, 3, 32, 32)).sum().backward()
>>> optimizer.step()
"""

import torch as _torch
from torch.autograd.function import once_differentiable as _once_differentiable

from . import _torchrs
from . import data as _data
from . import no_grad as _no_grad
from ._torchrs import from_dlpack as _from_dlpack

__all__ = ["DataLoader", "Module", "from_torch", "to_torch"]


def from_torch(x):
    """A torchrs tensor over the memory of one of PyTorch, without its history."""
    x = x.detach()
    return _from_dlpack(x.resolve_conj().resolve_neg())


def to_torch(x):
    """A tensor of PyTorch over the memory of one of torchrs, without its history; a copy of read-only memory."""
    return _torch.from_dlpack(x.detach())


class _Forward(_torch.autograd.Function):
    @staticmethod
    def forward(ctx, model, leaves, records, x, *parameters):
        wants = [records and want for want in ctx.needs_input_grad[3:]]
        ours = from_torch(x)
        if any(wants):
            if wants[0]:
                ours.requires_grad_()
            out = model(ours)
        else:
            with _no_grad():
                out = model(ours)
        theirs = to_torch(out)
        # PyTorch notices by these when one of them is changed in place before backward.
        ctx.save_for_backward(x, theirs, *parameters)
        ctx.ours = (out, [ours, *leaves]) if any(wants) else None
        return theirs

    @staticmethod
    @_once_differentiable
    def backward(ctx, grad):
        if ctx.ours is None:
            raise RuntimeError("torchrs.torch.Module: backward ran already; run forward again")
        ctx.saved_tensors
        (out, inputs), ctx.ours = ctx.ours, None
        wants = ctx.needs_input_grad[3:]
        wanted = [x for x, want in zip(inputs, wants) if want]
        found = iter(_torchrs.grad([out], wanted, [from_torch(grad)]))
        grads = [next(found) if want else None for want in wants]
        return (None, None, None, *(None if g is None else to_torch(g) for g in grads))


class Module(_torch.nn.Module):
    """A model of torchrs as a module of PyTorch.

    Its parameters and buffers are PyTorch's, over the model's memory: optimizers, `state_dict`, `load_state_dict`
    and hooks work as for any other. It stays on its device and in its dtypes. Backward runs once for each forward.
    """

    def __init__(self, model):
        super().__init__()
        if not isinstance(model, _torchrs.Model):
            raise TypeError(f"torchrs.torch.Module: a torchrs.Model is needed, not {type(model).__name__}")
        self.__dict__["model"] = model
        self.train()
        self._leaves = []
        self._parameter_names = []
        named = model.named_parameters()
        trained = set()
        for name, leaf in named:
            parameter = _torch.nn.Parameter(to_torch(leaf), requires_grad=leaf.requires_grad)
            self._place(name).register_parameter(name.rpartition(".")[2], parameter)
            self._leaves.append(leaf)
            self._parameter_names.append(name)
            trained.add(leaf.data_ptr())
        for name, tensor in model.state_dict().items():
            if name in self._parameter_names:
                continue
            if tensor.numel() and tensor.data_ptr() in trained:
                # A tied parameter, under its other name.
                first = next(n for n, leaf in named if leaf.data_ptr() == tensor.data_ptr())
                self._place(name).register_parameter(name.rpartition(".")[2], self.get_parameter(first))
            else:
                self._place(name).register_buffer(name.rpartition(".")[2], to_torch(tensor))

    def _place(self, name):
        """The module of PyTorch that has what is called so, made where it is not there."""
        at = self
        for part in name.split(".")[:-1]:
            if part not in at._modules:
                at.add_module(part, _torch.nn.Module())
            at = at._modules[part]
        return at

    def _apply(self, fn, recurse=True):
        before = [(p.data_ptr(), p.dtype) for p in self.parameters()]
        super()._apply(fn, recurse)
        if [(p.data_ptr(), p.dtype) for p in self.parameters()] != before:
            raise RuntimeError(
                "torchrs.torch.Module: the parameters are the Rust model's memory and cannot move to another device or "
                "dtype; make the model there"
            )
        return self

    def train(self, mode=True):
        """Training or evaluation, in Rust too."""
        super().train(mode)
        if "model" in self.__dict__:
            self.model.train() if mode else self.model.eval()
        return self

    def forward(self, x):
        """The model's output."""
        parameters = [self.get_parameter(name) for name in self._parameter_names]
        for name, leaf, parameter in zip(self._parameter_names, self._leaves, parameters):
            if parameter.data_ptr() != leaf.data_ptr():
                raise RuntimeError(
                    f"torchrs.torch.Module: parameter {name} has memory of its own by now, which the Rust model does "
                    "not see; change it in place (`copy_`, `load_state_dict` without assign=True)"
                )
        # Whether PyTorch records is another matter within the function.
        return _Forward.apply(self.model, self._leaves, _torch.is_grad_enabled(), x, *parameters)


class DataLoader(_data.DataLoader, _torch.utils.data.IterableDataset):
    """Batches of a dataset of torchrs as tensors of PyTorch, over the memory into which the workers wrote them.

    Takes what `torchrs.data.DataLoader` takes. It is an `IterableDataset` of whole batches, for what wants a dataset of
    PyTorch: `torch.utils.data.DataLoader(loader, batch_size=None)`, whose `num_workers` stays 0, as the batches are
    made by this loader's own.
    """

    def __iter__(self):
        if _torch.utils.data.get_worker_info() is not None:
            raise RuntimeError(
                "torchrs.torch.DataLoader has worker processes of its own: give them by its `num_workers`, and "
                "num_workers=0 to torch.utils.data.DataLoader, whose workers would each give every batch"
            )
        for images, labels in super().__iter__():
            yield to_torch(images), to_torch(labels)
