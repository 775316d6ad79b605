#!/usr/bin/env python3
"""Writes tests/api/models/{shapes,numbers}.json: names, shapes, outputs and gradients of the originals of
src/models. Needs torch, torchvision, transformers, and a checkout of NVIDIA/DeepLearningExamples:

    tools/golden/export-models.py --examples ~/DeepLearningExamples

No weights are written: `values` below makes them from names and indices, and tests/api/models/formula.rs
does the same. Everything is computed in double precision from weights that single precision can hold.
"""

import argparse, json, math, sys, types
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision.models as tv
from torchvision.models.vgg import make_layers
from transformers import GPT2Config, GPT2LMHeadModel

MASK = (1 << 64) - 1


def units(name, count):
    """Numbers in [-1, 1) with 24 bits: splitmix64 with the FNV-1a hash of `name` as its seed."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float64) / (1 << 23) - 1


def values(name, shape):
    """What the entry `name` of a state dict holds."""
    count = math.prod(shape)
    u = units(name, count)
    if name.endswith("running_var"):
        x = 1 + 0.5 * u
    elif len(shape) >= 2:
        x = u * math.sqrt(6 / (count // shape[0]))
    elif name.endswith("weight"):
        x = 1 + 0.25 * u
    else:
        x = 0.25 * u
    return torch.from_numpy(x.astype(np.float32).astype(np.float64)).reshape(shape)


def tokens(name, shape, vocabulary):
    u = (units(name, math.prod(shape)) + 1) / 2
    return torch.from_numpy(np.floor(u * vocabulary).astype(np.int64)).reshape(shape)


def fill(model):
    """Gives `model` its weights, in double precision."""
    model.to_empty(device="cpu").double()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(values(name, tensor.shape))
            else:
                tensor.zero_()
    # Tied tensors have been written under each of their names; the last one stays.
    return model


def probe(name, tensor):
    """The norm, and the product with fixed numbers, which sees each element and its place."""
    flat = tensor.detach().reshape(-1)
    return [flat.norm().item(), flat.dot(torch.from_numpy(units(name + ".probe", flat.numel()))).item()]


def record(model, output, inputs=()):
    """Output, the gradients of its product with fixed numbers, and the buffers."""
    weights = torch.from_numpy(units("loss", output.numel())).reshape(output.shape)
    (output * weights).sum().backward()
    grads = {n: probe(n, p.grad) for n, p in model.named_parameters() if p.grad is not None}
    grads |= {n: probe(n, x.grad) for n, x in inputs}
    buffers = {n: probe(n, b.double()) for n, b in model.named_buffers() if model.training}
    return {"output": output.detach().reshape(-1).tolist(), "grads": grads, "buffers": buffers}


def image_case(make, shape, train):
    model = fill(make()).train(train)
    x = torch.from_numpy(units("input", math.prod(shape))).reshape(shape).requires_grad_(True)
    return record(model, model(x), [("input", x)]) | {"input": list(shape), "train": train}


def vgg(stages, batch_norm, hidden):
    """A VGG of other sizes; torchvision's class fixes those of the linear layers."""
    layers = [v for stage in stages for v in [*stage, "M"]]
    with torch.device("meta"):
        model = tv.VGG(make_layers(layers, batch_norm), num_classes=10, init_weights=False, dropout=0)
        model.classifier[0] = nn.Linear(stages[-1][-1] * 49, hidden)
        model.classifier[3] = nn.Linear(hidden, hidden)
        model.classifier[6] = nn.Linear(hidden, 10)
    return model


def image_cases():
    from torchvision.models.resnet import BasicBlock, Bottleneck
    from torchvision.models.mobilenetv2 import MobileNetV2

    resnet = lambda *a, **k: lambda: tv.ResNet(*a, num_classes=10, **k)
    tiny = [[4], [8], [8, 8], [16, 16], [16, 16]]
    full = [[64] * 2, [128] * 2, [256] * 4, [512] * 4, [512] * 4]
    setting = [[1, 16, 1, 1], [6, 24, 2, 2], [4, 40, 2, 2], [6, 40, 1, 1]]
    mobile = lambda **k: lambda: MobileNetV2(num_classes=10, dropout=0, **k)
    return {
        "alexnet": image_case(lambda: tv.AlexNet(10, dropout=0), (1, 3, 63, 63), False),
        "vgg19": image_case(lambda: vgg(full, False, 32), (1, 3, 32, 32), False),
        "vgg_tiny": image_case(lambda: vgg(tiny, False, 16), (2, 3, 64, 64), False),
        "vgg_tiny_bn": image_case(lambda: vgg(tiny, True, 16), (2, 3, 64, 64), True),
        "resnet18": image_case(resnet(BasicBlock, [2] * 4), (2, 3, 64, 64), True),
        "resnet50": image_case(resnet(Bottleneck, [3, 4, 6, 3]), (1, 3, 64, 64), False),
        "resnext_dilated": image_case(
            resnet(Bottleneck, [1, 2, 2, 1], groups=8, width_per_group=4,
                   replace_stride_with_dilation=[False, True, True]), (2, 3, 49, 49), True),
        "mobilenet_v2": image_case(mobile(), (1, 3, 64, 64), False),
        "mobilenet_v2_tiny": image_case(
            mobile(width_mult=0.35, inverted_residual_setting=setting, round_nearest=4),
            (2, 3, 33, 33), True),
    }


GPT2 = dict(vocab_size=23, n_positions=24, n_embd=16, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=None)


def gpt2_cases():
    plain = lambda **k: fill(GPT2LMHeadModel(GPT2Config(**GPT2, **k))).eval()
    ids = tokens("input_ids", (2, 7), 23)
    model = plain()
    case = {"plain": record(model, model(ids).logits)}
    # The original rounds logits to single precision before its loss.
    model = plain()
    loss = F.cross_entropy(model(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert abs(loss.item() - model(ids, labels=ids).loss.item()) < 1e-5
    loss.backward()
    grads = {n: probe(n, p.grad) for n, p in model.named_parameters()}
    case["loss"] = {"loss": [loss.item()], "grads": grads}

    other = plain(n_inner=24, activation_function="relu", scale_attn_by_inverse_layer_idx=True,
                  tie_word_embeddings=False)
    case["other"] = record(other, other(ids).logits)

    # Padding on the left: only what comes behind it is compared.
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1] * 7])
    places = (mask.cumsum(1) - 1).clamp(min=0)
    logits = plain()(ids, attention_mask=mask, position_ids=places).logits
    case["padded"] = {"output": logits[:, 2:].detach().reshape(-1).tolist()}

    greedy = plain().generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False,
                              pad_token_id=0)
    case["greedy"] = greedy.tolist()
    return case


@torch.no_grad()
def translate(model, source, lengths, batch_first):
    """Nine words of each sentence, or up to the token that ends it."""
    context = [model.encode(source, lengths), lengths, None]
    words, out = torch.full((len(lengths),), 2), []
    for _ in range(9):
        step = words.view(-1, 1) if batch_first else words.view(1, -1)
        words, _, _, context = model.generate(step, context, 1)
        words = words.view(-1)
        out.append(words)
    sentences = torch.stack(out, 1).tolist()
    return [s[: s.index(3) + 1] if 3 in s else s for s in sentences]


def gnmt_cases(GNMT):
    case = {}
    for name, options in {"shared": {}, "apart": dict(batch_first=True, share_embedding=False)}.items():
        model = fill(GNMT(13, hidden_size=8, num_layers=4, dropout=0, **options))
        source, target = tokens("source", (3, 5), 13), tokens("target", (3, 4), 13)
        lengths = torch.tensor([5, 3, 2])
        if name == "shared":
            source, target = source.t(), target.t()
        case[name] = record(model, model(source, lengths, target))
        case[name]["translation"] = translate(model, source, lengths, batch_first=name == "apart")
        # Without the token that ends sentences.
        model.decoder.classifier.classifier.bias.data[3] = -10
        case[name]["endless"] = translate(model, source, lengths, batch_first=name == "apart")
    return case


def ncf_case(NeuMF):
    model = fill(NeuMF(11, 13, 4, [8, 8, 6], dropout=0))
    user, item = tokens("user", (6,), 11), tokens("item", (6,), 13)
    probabilities = model(user, item, sigmoid=True).detach().reshape(-1).tolist()
    return record(model, model(user, item)) | {"probabilities": probabilities}


def shapes(GNMT, NeuMF):
    """Names and shapes of the full sizes, without their memory."""
    names = ["alexnet", "mobilenet_v2"]
    names += [f"vgg{n}{bn}" for n in (11, 13, 16, 19) for bn in ("", "_bn")]
    names += [f"resnet{n}" for n in (18, 34, 50, 101, 152)]
    names += ["resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2"]
    make = {name: getattr(tv, name) for name in names}
    for name, sizes in {"gpt2": {}, "gpt2_medium": dict(n_embd=1024, n_layer=24, n_head=16),
                        "gpt2_large": dict(n_embd=1280, n_layer=36, n_head=20),
                        "gpt2_xl": dict(n_embd=1600, n_layer=48, n_head=25)}.items():
        make[name] = lambda sizes=sizes: GPT2LMHeadModel(GPT2Config(**sizes))
    make["gnmt"] = lambda: GNMT(32320)
    make["neumf"] = lambda: NeuMF(138493, 26744, 64, [256, 256, 128, 64], dropout=0.5)
    out = {}
    for name, make in make.items():
        with torch.device("meta"):
            model = make()
        state = [[n, *t.shape] for n, t in model.state_dict().items()]
        out[name] = {"parameters": sum(p.numel() for p in model.parameters()), "state": state}
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--examples", type=Path, required=True, help="checkout of DeepLearningExamples")
    examples = parser.parse_args().examples / "PyTorch"
    # Their logger, which the model does not use.
    sys.modules["dllogger"] = types.ModuleType("dllogger")
    sys.path += [str(examples / "Translation/GNMT"), str(examples / "Recommendation/NCF")]
    from neumf import NeuMF
    from seq2seq.models.gnmt import GNMT

    numbers = image_cases() | {"gpt2": gpt2_cases(), "gnmt": gnmt_cases(GNMT), "neumf": ncf_case(NeuMF)}
    folder = Path(__file__).parent.parent.parent / "tests/api/models"
    for name, data in {"shapes": shapes(GNMT, NeuMF), "numbers": numbers}.items():
        lines = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in data.items()]
        (folder / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
