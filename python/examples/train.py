"""Trains a model that is written in Rust with PyTorch's optimizer, on batches that worker processes in Rust make.

    python examples/train.py [EPOCHS]
"""

import sys

import torch

import torchrs
import torchrs.torch
from torchrs import models
from torchrs.data import Digits


def main(epochs=2):
    torchrs.manual_seed(0)
    model = torchrs.torch.Module(models.resnet18(num_classes=10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    train = torchrs.torch.DataLoader(Digits("train"), 64, True, num_workers=2, drop_last=True)
    validation = torchrs.torch.DataLoader(Digits("validation"), 64)

    def prepared(images):
        # Gray images of 8 x 8 as the model's: three colours, four times the size.
        return torch.nn.functional.interpolate(images, scale_factor=4.0).expand(-1, 3, -1, -1)

    for epoch in range(epochs):
        model.train()
        for images, labels in train:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(prepared(images)), labels)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(prepared(x)).argmax(1) == y).sum().item() for x, y in validation)
        print(f"epoch {epoch}: loss {loss.item():.3f}, {right} of 359 digits right")
    return right


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
