"""Writes the folders of tests/fixtures/hf with Hugging Face's own `transformers`, tiny and seeded: config.json, weights,
generation_config.json, and beside them inputs.safetensors, whose tensors are inputs, logits, losses and gradients.

    python tools/golden/hf_folders.py tests/fixtures/hf            # writes them
    python tools/golden/hf_folders.py --check FOLDER...            # FOLDER as `save_pretrained` of torchrs wrote it

With --check, `transformers` loads each folder: nothing may be missing or unexpected, and the logits must be those of
inputs.safetensors in the folder of tests/fixtures/hf that has the same name.

Recorded with transformers 5.24.0 and torch 2.15.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

FIXTURES = pathlib.Path(__file__).parents[2] / "tests/fixtures/hf"
VOCABULARY = 40


def tokens(*shape):
    return torch.randint(1, VOCABULARY, shape)


def gpt2():
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=24, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2
    )
    ids = tokens(2, 6)
    return GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}


def llama_config(**other):
    sizes = dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2)
    return LlamaConfig(
        **sizes, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, **other
    )


def llama():
    ids = tokens(2, 6)
    return LlamaForCausalLM(llama_config(rope_theta=500.0)), {"input_ids": ids, "labels": ids}


def llama_tied():
    scaling = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0)
    scaling["original_max_position_embeddings"] = 8
    config = llama_config(tie_word_embeddings=True, rope_parameters=dict(scaling, rope_theta=100.0))
    ids = tokens(2, 6)
    return LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}


def bert_config(**other):
    sizes = dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2)
    return BertConfig(**sizes, num_attention_heads=2, max_position_embeddings=16, **other)


def bert_inputs():
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    types = torch.zeros(2, 6, dtype=torch.long)
    types[:, 3:] = 1
    return {"input_ids": tokens(2, 6) * mask, "attention_mask": mask, "token_type_ids": types}


def bert_mlm():
    inputs = bert_inputs()
    labels = torch.full((2, 6), -100)
    labels[0, 1], labels[0, 4], labels[1, 2] = 7, 0, 31
    return BertForMaskedLM(bert_config()), dict(inputs, labels=labels)


def bert_classes():
    config = bert_config(num_labels=3, id2label={0: "bad", 1: "fair", 2: "good"}, hidden_act="gelu_new")
    return BertForSequenceClassification(config), dict(bert_inputs(), labels=torch.tensor([2, 0]))


def vit_config(**other):
    sizes = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2)
    return ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=3, **other)


def vit():
    return ViTForImageClassification(vit_config()), {
        "pixel_values": torch.randn(2, 3, 8, 8),
        "labels": torch.tensor([1, 2]),
    }


# Of a few parameters, so that the files stay small: some of the first and last layers, a norm, a table.
FOLDERS = [gpt2, llama, llama_tied, bert_mlm, bert_classes, vit]


def gradients(model):
    """All gradients, by the names that files have: written as if they were the weights, which they replace."""
    with torch.no_grad():
        for p in model.parameters():
            p.data = p.grad
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(f"{folder}/model.safetensors")


def spread(model):
    """Makes all parameters matter: biases are not 0, norms not 1, weights not near 0."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.3 + ("norm" in name.lower() and name.endswith("weight")))
        # What a table has for padding stays 0.
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0


def write(make, into):
    name, folder = make.__name__, into / make.__name__
    torch.manual_seed(len(name))
    model, inputs = make()
    spread(model)
    model.eval()
    shutil.rmtree(folder, ignore_errors=True)
    sharded = dict(max_shard_size="6KB") if name == "llama" else {}
    model.save_pretrained(folder, **sharded)
    if name == "llama":
        # As published ones have it: a list of ends, and settings of drawing.
        GenerationConfig(
            do_sample=True, temperature=0.6, top_p=0.9, max_new_tokens=5, bos_token_id=1, eos_token_id=[2, 3], pad_token_id=0
        ).save_pretrained(folder)
    out = model(**inputs)
    out.loss.backward()
    recorded = {f"input.{k}": v for k, v in inputs.items()}
    recorded |= {"logits": out.logits, "loss": out.loss.reshape(1)}
    if name == "gpt2":
        greedy = model.generate(inputs["input_ids"], max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0)
        recorded["greedy"] = greedy
    if name.startswith("bert"):
        plain = {k: v for k, v in inputs.items() if k != "labels"}
        recorded["features"] = model.bert(**plain).last_hidden_state
        # Without masks, types and labels.
        recorded["plain"] = model(inputs["input_ids"]).logits
    recorded |= {f"grad.{k}": v for k, v in gradients(model).items()}
    recorded = {k: v.detach().contiguous().clone() for k, v in recorded.items()}
    save_file(recorded, folder / "inputs.safetensors")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size} bytes in {sorted(f.name for f in folder.iterdir())}")


def check(folder):
    config = json.loads((folder / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0])
    model, found = kind.from_pretrained(folder, output_loading_info=True)
    found = {k: v for k, v in found.items() if v}
    assert not found, f"{folder}: {found}"
    recorded = load_file(FIXTURES / folder.name / "inputs.safetensors")
    inputs = {k[len("input.") :]: v for k, v in recorded.items() if k.startswith("input.")}
    model.eval()
    out = model(**inputs)
    torch.testing.assert_close(out.logits, recorded["logits"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(out.loss.reshape(1), recorded["loss"], rtol=1e-5, atol=1e-5)
    print(f"{folder}: {type(model).__name__} of transformers {transformers.__version__} loads it, and computes the same")


def main():
    if sys.argv[1] == "--check":
        for folder in sys.argv[2:]:
            check(pathlib.Path(folder))
    else:
        for make in FOLDERS:
            write(make, pathlib.Path(sys.argv[1]))


main()
