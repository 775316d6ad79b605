from typing import Iterator

import torch

from . import data
from ._torchrs import Model, Tensor

def from_torch(x: torch.Tensor) -> Tensor: ...
def to_torch(x: Tensor) -> torch.Tensor: ...

class Module(torch.nn.Module):
    model: Model
    def __init__(self, model: Model) -> None: ...
    def forward(self, x: torch.Tensor) -> torch.Tensor: ...

class DataLoader(data.DataLoader, torch.utils.data.IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]: ...  # type: ignore[override]
