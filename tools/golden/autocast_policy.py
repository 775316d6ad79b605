"""Writes tests/fixtures/autocast.tsv: the result types that PyTorch's autocast gives on the CPU.

    python tools/golden/autocast_policy.py > tests/fixtures/autocast.tsv

A line has an op and the result's type for inputs of f32, of bf16, and of bf16 with further ones of f32, inside
autocast to bf16; `error` where PyTorch refuses.
"""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float64: "f64", torch.int64: "i64", torch.bool: "bool"}
index = torch.tensor([1, 0])

# Inputs by shape, and the call. Rust's side of the table is tests/api/amp.rs.
OPS = {
    "mm": ([(2, 3), (3, 4)], torch.mm),
    "matmul": ([(2, 2, 3), (3, 4)], torch.matmul),
    "matmul_vectors": ([(3,), (3,)], torch.matmul),
    "bmm": ([(2, 2, 3), (2, 3, 4)], torch.bmm),
    "mv": ([(2, 3), (3,)], torch.mv),
    "dot": ([(3,), (3,)], torch.dot),
    "vdot": ([(3,), (3,)], torch.vdot),
    "inner": ([(2, 3), (4, 3)], torch.inner),
    "outer": ([(2,), (3,)], torch.outer),
    "addmm": ([(4,), (2, 3), (3, 4)], torch.addmm),
    "addmv": ([(2,), (2, 3), (3,)], torch.addmv),
    "addr": ([(2, 3), (2,), (3,)], torch.addr),
    "baddbmm": ([(2, 2, 4), (2, 2, 3), (2, 3, 4)], torch.baddbmm),
    "addbmm": ([(2, 4), (2, 2, 3), (2, 3, 4)], torch.addbmm),
    "einsum": ([(2, 3), (3, 4)], lambda a, b: torch.einsum("ij,jk->ik", a, b)),
    "tensordot": ([(2, 3), (3, 4)], lambda a, b: torch.tensordot(a, b, 1)),
    "kron": ([(2, 2), (2, 2)], torch.kron),
    "multi_dot": ([(2, 3), (3, 4), (4, 2)], lambda *x: torch.linalg.multi_dot(x)),
    "matrix_power": ([(3, 3)], lambda x: torch.matrix_power(x, 3)),
    "bilinear": ([(2, 3), (2, 4), (5, 3, 4)], F.bilinear),
    "linear": ([(2, 3), (4, 3), (4,)], F.linear),
    "linear_without_bias": ([(2, 3), (4, 3)], F.linear),
    "conv1d": ([(1, 2, 5), (3, 2, 3), (3,)], F.conv1d),
    "conv2d": ([(1, 2, 4, 4), (3, 2, 3, 3), (3,)], F.conv2d),
    "conv3d": ([(1, 2, 4, 4, 4), (3, 2, 3, 3, 3), (3,)], F.conv3d),
    "conv_transpose1d": ([(1, 2, 5), (2, 3, 3), (3,)], F.conv_transpose1d),
    "conv_transpose2d": ([(1, 2, 4, 4), (2, 3, 3, 3), (3,)], F.conv_transpose2d),
    "conv_transpose3d": ([(1, 2, 4, 4, 4), (2, 3, 3, 3, 3), (3,)], F.conv_transpose3d),
    "prelu": ([(2, 3), (3,)], F.prelu),
    "scaled_dot_product_attention": ([(1, 2, 3, 4)] * 3, F.scaled_dot_product_attention),
    "layer_norm": ([(2, 3), (3,), (3,)], lambda x, w, b: F.layer_norm(x, (3,), w, b)),
    "rms_norm": ([(2, 3), (3,)], lambda x, w: F.rms_norm(x, (3,), w)),
    "group_norm": ([(2, 4, 3), (4,), (4,)], lambda x, w, b: F.group_norm(x, 2, w, b)),
    "batch_norm": ([(2, 4, 3), (4,), (4,)], lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
    "instance_norm": ([(2, 4, 3), (4,), (4,)], lambda x, w, b: F.instance_norm(x, None, None, w, b)),
    "local_response_norm": ([(2, 4, 3, 3)], lambda x: F.local_response_norm(x, 2)),
    "softmax": ([(2, 3)], lambda x: x.softmax(1)),
    "log_softmax": ([(2, 3)], lambda x: x.log_softmax(1)),
    "logsumexp": ([(2, 3)], lambda x: x.logsumexp(1)),
    "sum": ([(2, 3)], torch.sum),
    "mean": ([(2, 3)], torch.mean),
    "prod": ([(2, 3)], torch.prod),
    "prod_dim": ([(2, 3)], lambda x: x.prod(1)),
    "cumsum": ([(2, 3)], lambda x: x.cumsum(1)),
    "cumprod": ([(2, 3)], lambda x: x.cumprod(1)),
    "logcumsumexp": ([(2, 3)], lambda x: x.logcumsumexp(1)),
    "var": ([(2, 3)], torch.var),
    "std": ([(2, 3)], torch.std),
    "norm": ([(2, 3)], torch.norm),
    "trace": ([(3, 3)], torch.trace),
    "median": ([(5,)], torch.median),
    "quantile": ([(5,)], lambda x: x.quantile(0.3)),
    "cdist": ([(2, 3), (4, 3)], torch.cdist),
    "dist": ([(3,), (3,)], torch.dist),
    "pdist": ([(3, 3)], F.pdist),
    "cosine_similarity": ([(2, 3), (2, 3)], F.cosine_similarity),
    "renorm": ([(2, 3)], lambda x: x.renorm(2, 0, 1.0)),
    "cov": ([(2, 3)], torch.cov),
    "corrcoef": ([(2, 3)], torch.corrcoef),
    "cross": ([(2, 3), (2, 3)], lambda a, b: torch.cross(a, b, dim=1)),
    "exp": ([(3,)], torch.exp),
    "log": ([(3,)], torch.log),
    "pow": ([(3,)], lambda x: x.pow(2.0)),
    "rsqrt": ([(3,)], torch.rsqrt),
    "reciprocal": ([(3,)], torch.reciprocal),
    "softplus": ([(3,)], F.softplus),
    "gelu": ([(3,)], F.gelu),
    "relu": ([(3,)], F.relu),
    "silu": ([(3,)], F.silu),
    "sigmoid": ([(3,)], torch.sigmoid),
    "tanh": ([(3,)], torch.tanh),
    "add": ([(3,), (3,)], torch.add),
    "mul": ([(3,), (3,)], torch.mul),
    "atan2": ([(3,), (3,)], torch.atan2),
    "addcmul": ([(3,), (3,), (3,)], torch.addcmul),
    "where": ([(3,), (3,)], lambda a, b: torch.where(a > 0.5, a, b)),
    "cat": ([(2,), (3,)], lambda *x: torch.cat(x)),
    "stack": ([(2,), (2,)], lambda *x: torch.stack(x)),
    "hstack": ([(2,), (3,)], lambda *x: torch.hstack(x)),
    "index_select": ([(3, 2)], lambda x: x.index_select(0, index)),
    "embedding": ([(3, 2)], lambda w: F.embedding(index, w)),
    "max_pool2d": ([(1, 1, 4, 4)], lambda x: F.max_pool2d(x, 2)),
    "max_pool3d": ([(1, 1, 4, 4, 4)], lambda x: F.max_pool3d(x, 2)),
    "avg_pool2d": ([(1, 1, 4, 4)], lambda x: F.avg_pool2d(x, 2)),
    "avg_pool3d": ([(1, 1, 4, 4, 4)], lambda x: F.avg_pool3d(x, 2)),
    "adaptive_avg_pool2d": ([(1, 1, 4, 4)], lambda x: F.adaptive_avg_pool2d(x, 2)),
    "adaptive_avg_pool3d": ([(1, 1, 4, 4, 4)], lambda x: F.adaptive_avg_pool3d(x, 2)),
    "adaptive_max_pool3d": ([(1, 1, 4, 4, 4)], lambda x: F.adaptive_max_pool3d(x, 2)),
    "interpolate": ([(1, 1, 4, 4)], lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")),
    "grid_sample": ([(1, 1, 4, 4), (1, 2, 2, 2)], lambda x, g: F.grid_sample(x, g, align_corners=False)),
    "pad_reflect1d": ([(1, 2, 4)], lambda x: F.pad(x, (1, 1), mode="reflect")),
    "pad_reflect3d": ([(1, 2, 4, 4, 4)], lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), mode="reflect")),
    "pad_replicate2d": ([(1, 2, 4, 4)], lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate")),
    "pad_constant": ([(2, 4)], lambda x: F.pad(x, (1, 1))),
    "mse_loss": ([(3,), (3,)], F.mse_loss),
    "l1_loss": ([(3,), (3,)], F.l1_loss),
    "smooth_l1_loss": ([(3,), (3,)], F.smooth_l1_loss),
    "huber_loss": ([(3,), (3,)], F.huber_loss),
    "binary_cross_entropy": ([(3,), (3,)], F.binary_cross_entropy),
    "binary_cross_entropy_with_logits": ([(3,), (3,)], F.binary_cross_entropy_with_logits),
    "kl_div": ([(3,), (3,)], F.kl_div),
    "soft_margin_loss": ([(3,), (3,)], F.soft_margin_loss),
    "poisson_nll_loss": ([(3,), (3,)], F.poisson_nll_loss),
    "gaussian_nll_loss": ([(3,), (3,), (3,)], F.gaussian_nll_loss),
    "margin_ranking_loss": ([(3,), (3,), (3,)], F.margin_ranking_loss),
    "hinge_embedding_loss": ([(3,), (3,)], F.hinge_embedding_loss),
    "cosine_embedding_loss": ([(2, 3), (2, 3), (2,)], F.cosine_embedding_loss),
    "triplet_margin_loss": ([(2, 3), (2, 3), (2, 3)], F.triplet_margin_loss),
    "multi_margin_loss": ([(2, 3)], lambda x: F.multi_margin_loss(x, index)),
    "multilabel_margin_loss": ([(2, 2)], lambda x: F.multilabel_margin_loss(x, torch.tensor([[0, -1], [1, 0]]))),
    "multilabel_soft_margin_loss": ([(2, 3), (2, 3)], F.multilabel_soft_margin_loss),
    "nll_loss": ([(2, 3)], lambda x: F.nll_loss(x, index)),
    "cross_entropy": ([(2, 3)], lambda x: F.cross_entropy(x, index)),
    "cross_entropy_of_shares": ([(2, 3), (2, 3)], F.cross_entropy),
    "ctc_loss": ([(4, 1, 3)], lambda x: F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2]]), [4], [2])),
    "inverse": ([(2, 2)], torch.linalg.inv),
    "det": ([(2, 2)], torch.linalg.det),
    "cholesky": ([(2, 2)], lambda a: torch.linalg.cholesky(a @ a.mT + torch.eye(2))),
    "qr": ([(2, 2)], torch.linalg.qr),
    "svd": ([(2, 2)], torch.linalg.svd),
    "eigh": ([(2, 2)], torch.linalg.eigh),
    "pinv": ([(2, 2)], torch.linalg.pinv),
    "solve": ([(2, 2), (2, 3)], torch.linalg.solve),
    "solve_triangular": ([(2, 2), (2, 3)], lambda a, b: torch.linalg.solve_triangular(a, b, upper=True)),
    "lstsq": ([(3, 2), (3, 1)], torch.linalg.lstsq),
    "irfft": ([(4,)], torch.fft.irfft),
    "vecdot": ([(2, 3), (2, 3)], torch.linalg.vecdot),
}


def inputs(shapes, dtypes):
    result = []
    for i, shape in enumerate(shapes):
        x = torch.rand(shape) * 0.9 + 0.05
        if len(shape) == 2 and shape[0] == shape[1]:
            x += torch.eye(shape[0])
        result.append(x.to(dtypes[min(i, len(dtypes) - 1)]))
    return result


def outcome(shapes, call, dtypes):
    try:
        with torch.autocast("cpu", torch.bfloat16):
            result = call(*inputs(shapes, dtypes))
    except (RuntimeError, ValueError) as e:
        return "error"
    result = result[0] if isinstance(result, tuple) else result
    return NAMES[result.dtype]


single, half = torch.float32, torch.bfloat16
for name, (shapes, call) in OPS.items():
    print(name, *(outcome(shapes, call, d) for d in ([single], [half], [half, single])), sep="\t")
