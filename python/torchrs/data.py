"""Datasets and a loader that are written in Rust. The loader's workers are processes without Python, which write their
batches into shared memory: a batch is two tensors over that memory.

>>> from torchrs.data import DataLoader, Digits
>>> loader = DataLoader(Digits("train"), batch_size=64, shuffle=True, num_workers=2)
>>> images, labels = next(iter(loader))
>>> images.shape
(64, 1, 8, 8)
"""

import json as _json

from . import _torchrs
from ._torchrs import Dataset

__all__ = [
    "Cifar10", "DataLoader", "Dataset", "Digits", "FashionMnist", "ImageFolder", "Synthetic", "TextWindows",
]


def Digits(part="all"):
    """The 8 x 8 digits of scikit-learn, built in: `all`, `train` or `validation`."""
    return _torchrs.digits(part)


def Synthetic(length, *, classes=10, shape=(1, 28, 28), noise=0.3, seed=0):
    """Images that are made up: a pattern for each class, and noise."""
    return _torchrs.synthetic(length, classes, list(shape), noise, seed)


def FashionMnist(folder, *, train=True, augment=False):
    """Fashion-MNIST from its files in a folder."""
    return _torchrs.fashion_mnist(folder, train, augment)


def Cifar10(folder, *, train=True):
    """CIFAR-10 from its binary files in a folder."""
    return _torchrs.cifar10(folder, train)


def ImageFolder(root, size, *, augment=False):
    """Image files in a folder for each class, as `torchvision.datasets.ImageFolder` has them."""
    return _torchrs.image_folder(root, size, augment)


def TextWindows(path, length):
    """Windows of a text's bytes, each with the one that is shifted by a byte."""
    return _torchrs.text_windows(path, length)


class DataLoader:
    """Batches of a dataset: in an order that is a function of seed and epoch, made ahead by `num_workers` processes.

    Names are those of `torch.utils.data.DataLoader`. `seed` is the order's, `timeout` the longest wait for a batch in
    seconds (for ever by default), `ranks=(world_size, rank)` deals the samples out. A loader has one iteration at a
    time: a new one ends the one before. Errors of a worker name the sample and the worker.
    """

    def __init__(self, dataset, batch_size=1, shuffle=False, **options):
        self._loader = _torchrs.Loader(dataset, batch_size, shuffle, **options)
        self.dataset = dataset
        self.batch_size = batch_size

    def __len__(self):
        return len(self._loader)

    def __iter__(self):
        return iter(self._loader)

    def set_epoch(self, epoch):
        """Chooses the epoch of the next iteration; without it they count up from 0."""
        self._loader.set_epoch(epoch)

    def state_dict(self):
        """Where the iteration is: after the last batch that was given."""
        return _json.loads(self._loader.state_json())

    def load_state_dict(self, state):
        """Goes on from where another loader of the dataset was."""
        self._loader.load_state_json(_json.dumps(state))
