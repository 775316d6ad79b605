#!/usr/bin/env python3
"""Writes tests/fixtures/metrics.json: the metrics of torchmetrics and scikit-learn for inputs that are written with
them. Needs torch, torchmetrics and scikit-learn; run at the root of the repository."""
import json
import torch
import torchmetrics
import torchmetrics.classification as tc
import torchmetrics.regression as tr
import torchmetrics.text as tt
import sklearn
import sklearn.metrics as sk

torch.manual_seed(5)
N, C = 60, 4
# Eighths, so that scores tie.
scores = (torch.randn(N, C) * 8).round() / 8
classes = torch.randint(0, 3, (N,))  # of class 3 there is no sample
scores[torch.arange(N), classes] += 0.75
every = torch.cat([torch.arange(C), torch.randint(0, C, (N - C,))])
ignored = classes.clone()
ignored[::7] = -100
binary = (torch.sigmoid(scores[:, 0]) * 16).round() / 16
yes = (classes == 0).long()
image_scores, image_classes = torch.randn(2, 3, 4, 5), torch.randint(0, 3, (2, 4, 5))
logits, tokens = torch.randn(3, 5, 7), torch.randint(0, 7, (3, 5))
tokens[0, 3:] = -100
numbers, right = torch.randn(20, 3), torch.randn(20, 3)
right = right + numbers
texts = ["the cat is on the mat", "it is a guide to action which ensures that the military always obeys", "short"]
references = [["there is a cat on the mat", "a cat is on the mat"],
              ["it is a guide to action that ensures that the military will forever heed", "it is the guiding principle"],
              ["short text"]]
one = [r[0] for r in references]

kinds = ["micro", "macro", "weighted"]
multi = dict(num_classes=C)
values = {
    "accuracy": tc.MulticlassAccuracy(average="micro", **multi)(scores, classes),
    "accuracy_ignored": tc.MulticlassAccuracy(average="micro", ignore_index=-100, **multi)(scores, ignored),
    "accuracy_images": tc.MulticlassAccuracy(3, average="micro")(image_scores, image_classes),
    "top2": tc.MulticlassAccuracy(average="micro", top_k=2, **multi)(scores + torch.arange(N * C).view(N, C) * 1e-4, classes),
    "confusion": tc.MulticlassConfusionMatrix(**multi)(scores, classes),
    "precision": [tc.MulticlassPrecision(average=a, **multi)(scores, classes) for a in kinds],
    "recall": [tc.MulticlassRecall(average=a, **multi)(scores, classes) for a in kinds],
    "f1": [tc.MulticlassF1Score(average=a, **multi)(scores, classes) for a in kinds],
    "jaccard": [tc.MulticlassJaccardIndex(average=a, **multi)(scores, classes) for a in kinds],
    "f1_per_class": tc.MulticlassF1Score(average=None, **multi)(scores, classes),
    "auroc": tc.BinaryAUROC()(binary, yes),
    "auroc_sklearn": sk.roc_auc_score(yes, binary),
    "auroc_multiclass": tc.MulticlassAUROC(**multi)(torch.softmax(scores.double(), 1), every),
    "average_precision": tc.BinaryAveragePrecision()(binary, yes),
    "average_precision_sklearn": sk.average_precision_score(yes, binary),
    "perplexity": tt.Perplexity(ignore_index=-100)(logits, tokens),
    "bleu": tt.BLEUScore()(texts, references),
    "bleu_smooth": tt.BLEUScore(smooth=True)(texts, references),
    "word_error_rate": tt.WordErrorRate()(texts, one),
    "mean_squared_error": tr.MeanSquaredError()(numbers, right),
    "mean_absolute_error": tr.MeanAbsoluteError()(numbers, right),
    "r2_score": tr.R2Score()(numbers.flatten(), right.flatten()),
}
inputs = {
    "scores": scores, "top2_scores": scores + torch.arange(N * C).view(N, C) * 1e-4, "classes": classes, "every": every,
    "softmax": torch.softmax(scores.double(), 1), "ignored": ignored, "binary": binary, "yes": yes,
    "image_scores": image_scores, "image_classes": image_classes, "logits": logits, "tokens": tokens,
    "numbers": numbers, "right": right,
}
plain = lambda v: [plain(x) for x in v] if isinstance(v, list) else v.tolist() if hasattr(v, "tolist") else float(v)
document = {
    "made_by": f"torch {torch.__version__}, torchmetrics {torchmetrics.__version__}, scikit-learn {sklearn.__version__}",
    "inputs": {k: {"shape": list(v.shape), "data": v.flatten().tolist()} for k, v in inputs.items()},
    "texts": texts, "references": references, "values": {k: plain(v) for k, v in values.items()},
}
with open("tests/fixtures/metrics.json", "w") as file:
    file.write("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in document.items()) + "\n}\n")
