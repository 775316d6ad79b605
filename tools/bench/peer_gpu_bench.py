#!/usr/bin/env python3
"""PyTorch's side of `tools/gpu-check`'s benchmarks: rows of the same names and units.

usage: peer_gpu_bench.py [--device cuda] [--tiny] [--budget SECONDS] [SECTION ...]

Prints one JSON line per row, {"name", "unit", "median_s", "min_s", "rate", "host_s"}. Without a section it reads
their names from its standard input, a line each, and prints {"done": SECTION} behind the rows of each, so that
both sides can take turns without starting PyTorch anew. SECTION:compile is a section of training steps whose models
torch.compile has compiled; its rows say "compiled". Where PyTorch has a faster way to the same result
(channels_last, fused optimizers), that one is taken. Switches have their defaults on both sides: f32 products are
exact (the rows called tf32 set the switch), convolutions of f32 tensors may use tf32, and cuDNN's algorithms are
chosen by its heuristics, not by trying them out.
"""

import argparse, json, os, sys, time

import torch, torch.nn as nn, torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
A = None
G = 1e-9
# What rows say of themselves: whether they are of compiled models.
KIND = {}
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


def size(full, tiny):
    return tiny if A.tiny else full


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=A.device).to(dtype)


class Clock:
    """Seconds of some calls: on the device by events, on the host until all was started."""

    def __init__(self):
        self.cuda = A.device == "cuda"
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if self.cuda else None

    def sample(self, times, call):
        if self.cuda:
            torch.cuda.synchronize()
            self.events[0].record()
        start = time.perf_counter()
        for _ in range(times):
            call()
        host = time.perf_counter() - start
        device = host
        if self.cuda:
            self.events[1].record()
            self.events[1].synchronize()
            device = self.events[0].elapsed_time(self.events[1]) * 1e-3
        return device / times, host / times


def samples(call, least, most):
    clock = Clock()
    clock.sample(1, call)
    # The first calls compile and plan.
    device, host = clock.sample(1, call)
    times = 1 if A.tiny else max(1, min(most, int(least / max(device, host, 1e-9))))
    found, start = [], time.perf_counter()
    while len(found) < 3 or (time.perf_counter() - start < A.budget and len(found) < 200):
        found.append(clock.sample(times, call))
    return found


def emit(name, unit, work, seconds, found):
    seconds = sorted(seconds)
    rate = seconds[0] * 1e6 if unit == "us" else work / seconds[0]
    row = {"name": name, "unit": unit, "median_s": seconds[len(seconds) // 2], "min_s": seconds[0], **KIND}
    print(json.dumps({**row, "rate": rate, "host_s": min(host for _, host in found)}), flush=True)


def attempt(name, row):
    """A row that fails says so and ends no other; a line before it says which one hangs or ends the process."""
    print(json.dumps({"begin": name, **KIND}), flush=True)
    try:
        row()
    except Exception as error:
        print(json.dumps({"name": name, "error": f"{type(error).__name__}: {error}"[:400], **KIND}), flush=True)
    if A.device == "cuda":
        torch.cuda.empty_cache()


def on_device(name, unit, work, call):
    def row():
        found = samples(call, 5e-3, 512)
        emit(name, unit, work, [device for device, _ in found], found)
    attempt(name, row)


def on_host(name, call):
    def row():
        found = samples(call, 1e-3, 256)
        emit(name, "us", 0, [host for _, host in found], found)
    attempt(name, row)


# ---------------------------------------------------------------- sections
def launches():
    a, b, m, n = normal(1024), normal(1024), normal(64, 64), normal(64, 64)
    with torch.no_grad():
        on_host("host_add_1024", lambda: a + b)
        on_host("host_add_inplace_1024", lambda: a.add_(b))
        on_host("host_sum_1024", lambda: a.sum())
        on_host("host_softmax_64x64", lambda: m.softmax(-1))
        on_host("host_matmul_64", lambda: m @ n)
        on_host("host_view_transpose", lambda: m.view(4096).reshape(64, 64).t())
        on_host("host_alloc_4KiB", lambda: torch.empty(1024, device=A.device))
        on_host("host_alloc_64MiB", lambda: torch.empty(16 << 20, device=A.device))
        on_device("launch_add_1024", "Mop/s", 1e-6, lambda: a + b)
    x = normal(1024).requires_grad_()
    on_host("host_add_1024_recorded", lambda: x + b)
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    net, x, y = nn.Sequential(*layers).to(A.device), normal(32, 64), torch.randint(0, 10, (32,), device=A.device)
    with torch.no_grad():
        on_host("host_mlp_fwd", lambda: net(x))
    opt = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)

    def step():
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    on_host("host_mlp_step", step)


def memory():
    n = size(64 << 20, 4096)
    x, y = normal(4 * n), normal(4 * n)
    on_device("copy_f32_256Mi", "GB/s", 32 * G * n, lambda: y.copy_(x))
    del x, y
    for short, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        with torch.no_grad():
            elementwise(short, dtype, n)
        rowwise(short, dtype)
    shape = size((64, 256, 56, 56), (2, 4, 8, 8))
    x, g = normal(*shape).requires_grad_(), normal(*shape)
    w, b = (torch.ones(shape[1], device=A.device).requires_grad_() for _ in range(2))
    with_backward("batch_norm_f32_64x256x56x56", lambda: F.batch_norm(x, None, None, w, b, True), [x, w, b], g, 3, 8)
    rows, classes = size((8192, 50304), (8, 128))
    s = normal(rows, classes, dtype=torch.bfloat16).requires_grad_()
    t = torch.randint(0, classes, (rows,), device=A.device)

    def entropy():
        F.cross_entropy(s, t).backward()
        s.grad = None
    on_device("cross_entropy_bf16_8192x50304_fwdbwd", "GB/s", 6 * s.numel() * G, entropy)


def elementwise(short, dtype, n):
    x, y = normal(n, dtype=dtype), normal(n, dtype=dtype)
    side = int(n ** 0.5)
    square = x.view(side, side)
    bytes_of = lambda times: times * n * x.element_size() * G
    for name, times, call in (
        ("add", 3, lambda: x + y), ("mul_scalar", 2, lambda: x * 1.5), ("gelu", 2, lambda: F.gelu(x)),
        ("exp", 2, lambda: x.exp()), ("relu", 2, lambda: x.relu()), ("sum", 1, lambda: x.sum()),
        ("sum_dim0", 1, lambda: square.sum(0)), ("transpose_copy", 2, lambda: square.t().contiguous()),
    ):
        on_device(f"{name}_{short}_64Mi", "GB/s", bytes_of(times), call)
    if short == "f32":
        on_device("cast_f32_bf16_64Mi", "GB/s", 6 * G * n, lambda: x.to(torch.bfloat16))


def with_backward(name, call, leaves, g, forward, both):
    data = leaves[0].numel() * leaves[0].element_size() * G
    with torch.no_grad():
        on_device(f"{name}_fwd", "GB/s", forward * data, call)

    def step():
        call().backward(g)
        for leaf in leaves:
            leaf.grad = None
    on_device(f"{name}_fwdbwd", "GB/s", both * data, step)


def rowwise(short, dtype):
    rows, columns = size((16384, 4096), (8, 128))
    x, g = normal(rows, columns, dtype=dtype).requires_grad_(), normal(rows, columns, dtype=dtype)
    w, b = (normal(columns, dtype=dtype).requires_grad_() for _ in range(2))
    with_backward(f"softmax_{short}_16384x4096", lambda: x.softmax(-1), [x], g, 2, 5)
    norm = lambda: F.layer_norm(x, (columns,), w, b)
    with_backward(f"layer_norm_{short}_16384x4096", norm, [x, w, b], g, 2, 5)


def products():
    layers = [(16384, 768, 3072), (16384, 3072, 768), (8192, 768, 50304)]
    for short, squares in (("bf16", (1024, 4096, 8192)), ("f32", (1024, 2048, 4096)), ("tf32", (4096, 8192))):
        torch.backends.cuda.matmul.allow_tf32 = short == "tf32"
        for m, k, n in [(n, n, n) for n in squares] + layers:
            name, dtype = f"gemm_{short}_{m}x{k}x{n}", DTYPES.get(short, torch.float32)
            m, k, n = (size(s, s // 256) for s in (m, k, n))
            x, w = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype)
            with torch.no_grad():
                on_device(name, "TFLOP/s", 2e-12 * m * k * n, lambda: x @ w.t())
    torch.backends.cuda.matmul.allow_tf32 = False


def attention():
    for short, width, length in (("bf16", 64, 2048), ("bf16", 128, 2048), ("f32", 64, 1024)):
        for causal in (True, False):
            name = f"sdpa_{short}_{'causal' if causal else 'full'}_8x16x{length}x{width}"
            shape = size((8, 16, length, width), (1, 2, 32, width))
            q, k, v = (normal(*shape, dtype=DTYPES[short]).requires_grad_() for _ in range(3))
            g = normal(*shape, dtype=DTYPES[short])
            work = 4e-12 * shape[0] * shape[1] * shape[2] ** 2 * width * (0.5 if causal else 1)
            attend = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            with torch.no_grad():
                on_device(f"{name}_fwd", "TFLOP/s", work, attend)

            def step():
                attend().backward(g)
                q.grad = k.grad = v.grad = None
            on_device(f"{name}_fwdbwd", "TFLOP/s", 3.5 * work, step)


def compiled(model):
    return torch.compile(model) if KIND else model


def gpt2_model():
    from peer_bench import gpt
    L, d, H, V, T = size((12, 768, 12, 50257, 1024), (1, 32, 2, 128, 32))
    return gpt(torch, L, d, H, V, T).to(A.device), V, T


def gpt2():
    (net, V, T), batch = gpt2_model(), size(16, 2)
    net = compiled(net)
    x, y = torch.randint(0, V, (batch, T), device=A.device), torch.randint(0, V, (batch * T,), device=A.device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    def step():
        opt.zero_grad()
        with torch.autocast(A.device, torch.bfloat16):
            loss = F.cross_entropy(net(x).view(-1, V), y)
        loss.backward()
        opt.step()
    on_device("train_gpt2_124M_bf16", "tok/s", batch * T, step)


class LlamaBlock(nn.Module):
    def __init__(self, width, hidden, heads, kv_heads, dim):
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, dim
        linear = lambda n, m: nn.Linear(n, m, bias=False)
        self.q, self.k, self.v = (linear(width, n * dim) for n in (heads, kv_heads, kv_heads))
        self.o, self.gate, self.up, self.down = (
            linear(heads * dim, width), linear(width, hidden), linear(width, hidden), linear(hidden, width))
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-5) for _ in range(2))

    def forward(self, x, cos, sin):
        B, T, _ = x.shape
        part = lambda y, n: y.view(B, T, n, self.dim).transpose(1, 2)

        def turned(y):
            a, b = y.chunk(2, -1)
            return y * cos + torch.cat((-b, a), -1) * sin
        y = self.norms[0](x)
        q, k, v = part(self.q(y), self.heads), part(self.k(y), self.kv_heads), part(self.v(y), self.kv_heads)
        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(B, T, -1))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def llama():
    L, width, hidden, heads, kv_heads, dim, V, T = size(
        (4, 2048, 8192, 32, 8, 64, 128256, 2048), (1, 64, 128, 4, 2, 16, 128, 32))
    batch = size(4, 2)
    table = nn.Embedding(V, width, device=A.device)
    nn.init.normal_(table.weight, std=0.02)
    blocks = nn.ModuleList(LlamaBlock(width, hidden, heads, kv_heads, dim) for _ in range(L)).to(A.device)
    norm = nn.RMSNorm(width, eps=1e-5, device=A.device)
    angles = torch.outer(torch.arange(T), 500000.0 ** (-torch.arange(0, dim, 2) / dim)).to(A.device)
    cos, sin = (f(angles).repeat(1, 2).to(torch.bfloat16) for f in (torch.cos, torch.sin))
    x = torch.randint(0, V, (batch, T), device=A.device)
    parameters = [*table.parameters(), *blocks.parameters(), *norm.parameters()]
    opt = torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    @compiled
    def loss_of(x):
        y = table(x)
        for block in blocks:
            y = block(y, cos, sin)
        logits = F.linear(norm(y), table.weight)
        return F.cross_entropy(logits[:, :-1].reshape(-1, V), x[:, 1:].reshape(-1))

    def step():
        opt.zero_grad()
        with torch.autocast(A.device, torch.bfloat16):
            loss = loss_of(x)
        loss.backward()
        opt.step()
    on_device("train_llama_4_blocks_bf16", "tok/s", batch * T, step)


def bert():
    (L, width, heads), (batch, T) = size((12, 768, 12), (1, 32, 2)), size((32, 512), (2, 16))
    layer = lambda: nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True)
    net = compiled(nn.Sequential(*(layer() for _ in range(L))).to(A.device))
    x = normal(batch, T, width)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    def step():
        opt.zero_grad()
        with torch.autocast(A.device, torch.bfloat16):
            y = net(x)
        y.float().square().mean().backward()
        opt.step()
    on_device("train_bert_base_bf16", "tok/s", batch * T, step)


def optim():
    parameters = list(gpt2_model()[0].parameters())
    n = sum(p.numel() for p in parameters) * G
    for p in parameters:
        p.grad = torch.randn_like(p) * 1e-3
    on_device("optim_adamw_124M", "GB/s", 28 * n, torch.optim.AdamW(parameters, lr=1e-5, fused=True).step)
    sgd = torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, fused=True)
    on_device("optim_sgd_momentum_124M", "GB/s", 20 * n, sgd.step)
    clip = lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    on_device("optim_clip_grad_norm_124M", "GB/s", 12 * n, clip)


def images(name, batch, make):
    """Training steps with channels_last, in f32 (tf32 convolutions) and with autocast to bf16."""
    for short in ("f32", "bf16"):
        net = compiled(make().to(A.device, memory_format=torch.channels_last))
        side, count = size(224, 32), size(batch, 2)
        x = normal(count, 3, side, side).contiguous(memory_format=torch.channels_last)
        y = torch.randint(0, 10, (count,), device=A.device)
        opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, fused=True)

        def step():
            opt.zero_grad()
            with torch.autocast(A.device, torch.bfloat16, enabled=short == "bf16"):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
        on_device(f"train_{name}_{short}", "img/s", count, step)
        del net, opt


def tiny_network():
    layers = [nn.Conv2d(3, 8, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(), nn.Linear(72, 10)]
    return nn.Sequential(*layers)


def network(name):
    import torchvision
    return getattr(torchvision.models, name)()


def of_torchvision(name, batch):
    return lambda: images(name, batch, tiny_network if A.tiny else lambda: network(name))


SECTIONS = {
    "launches": launches, "bytes": memory, "products": products, "attention": attention, "optim": optim, "gpt2": gpt2,
    "llama": llama, "bert": bert,
    "resnet50": of_torchvision("resnet50", 128), "alexnet": of_torchvision("alexnet", 256),
    "vgg19": of_torchvision("vgg19", 64),
}


def main():
    global A
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--budget", type=float, default=0.2)
    A = parser.parse_args()
    where = torch.cuda.get_device_name() if A.device == "cuda" else "the CPU"
    print(json.dumps({"peer": f"PyTorch {torch.__version__} on {where}"}), flush=True)
    for section in A.sections or (line.strip() for line in sys.stdin):
        name, _, how = section.partition(":")
        KIND.clear()
        KIND.update({"compiled": True} if how == "compile" else {})
        try:
            SECTIONS[name]()
        except Exception as error:
            print(json.dumps({"name": f"section {section}", "error": f"{type(error).__name__}: {error}"[:400], **KIND}), flush=True)
        if KIND:
            # The next section's models are others.
            torch.compiler.reset()
        print(json.dumps({"done": section}), flush=True)


if __name__ == "__main__":
    main()
