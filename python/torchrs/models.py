"""Models that are written in Rust: those of `torchvision.models`, and GPT-2. Parameters have the originals' names.

>>> from torchrs import models
>>> model = models.resnet18(num_classes=10).eval()
>>> [name for name, _ in model.named_parameters()][:2]
['conv1.weight', 'bn1.weight']
"""

import json as _json
import os as _os

from . import _torchrs

__all__ = ["gpt2", *_torchrs.image_models()]


def gpt2(config=None, **settings):
    """GPT-2 with a head for the next token, with the settings of Hugging Face's `GPT2Config`.

    `config` is a `config.json` file or a dict of such settings, of which those that concern other models are passed
    over; a setting by name that the model does not have is an error.
    """
    if config is None:
        return _torchrs.gpt2(_json.dumps(settings), list(settings))
    if isinstance(config, (str, _os.PathLike)):
        with open(config, encoding="utf-8") as file:
            config = _json.load(file)
    return _torchrs.gpt2(_json.dumps({**config, **settings}), list(settings))


def _named(name):
    def make(num_classes=1000):
        return _torchrs.image_model(name, num_classes)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"`torchvision.models.{name}` for images [batch, 3, height, width]."
    return make


for _name in _torchrs.image_models():
    globals()[_name] = _named(_name)
