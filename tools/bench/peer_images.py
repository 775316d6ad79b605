#!/usr/bin/env python3
"""PyTorch's side of the benches `images`, `parquet` and `transforms`: torchvision, webdataset, pyarrow, NumPy.

    peer_images.py --make                  writes the files that both sides read, unless they are there
    peer_images.py [loaders|parquet|transforms] [--filter TEXT] [--turns] [--budget SECONDS]

The files lie in TORCHRS_BENCH_IMAGES, or torchrs-bench-images in the folder for temporary files: 2,000 JPEGs of 500 x 375
(quality 90, 4:2:0, about 56 KB) in 10 classes, the same in four tar shards, 100,000 rows of 32 numbers in four Parquet
files, 20 million tokens of 16 bits. Prints a JSON line per row. Loaders have two workers; their rows count from the first
batch on, and `_cpu` is the processor time of a pass, workers included.
"""

import argparse
import io
import json
import os
import sys
import tarfile
import tempfile
import time

IMAGES, BATCH, WINDOW, ROWS = 2000, 32, 1024, 100_000
FOLDER = os.environ.get("TORCHRS_BENCH_IMAGES") or os.path.join(tempfile.gettempdir(), "torchrs-bench-images")
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def make():
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    if os.path.isdir(FOLDER):
        return
    part = f"{FOLDER}.{os.getpid()}"
    for folder in ("jpeg", "tar", "parquet"):
        os.makedirs(os.path.join(part, folder))
    rng = np.random.default_rng(0)

    def noise(height, width):
        small = Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8))
        return np.asarray(small.resize((500, 375), Image.BICUBIC), np.float32)

    tars = [tarfile.open(os.path.join(part, "tar", f"shard-{i:04}.tar"), "w") for i in range(4)]
    for i in range(IMAGES):
        # Two scales of noise, blown up smoothly: as much detail as a photograph.
        pixels = (0.7 * noise(12, 16) + 0.3 * noise(94, 125)).clip(0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=90)
        folder = os.path.join(part, "jpeg", f"class{i % 10}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{i:05}.jpg"), "wb") as out:
            out.write(file.getvalue())
        for field, data in (("cls", str(i % 10).encode()), ("jpg", file.getvalue())):
            member = tarfile.TarInfo(f"{i:05}.{field}")
            member.size = len(data)
            tars[i % 4].addfile(member, io.BytesIO(data))
    for tar in tars:
        tar.close()
    for i in range(4):
        n = ROWS // 4
        features = pa.array(list(rng.standard_normal((n, 32), np.float32)), pa.list_(pa.float32()))
        table = pa.table({"features": features, "label": pa.array(rng.integers(0, 10, n))})
        pq.write_table(table, os.path.join(part, "parquet", f"part-{i:04}.parquet"))
    rng.integers(0, 50_000, 20_000_000, np.uint16).tofile(os.path.join(part, "tokens.bin"))
    os.rename(part, FOLDER)


def processor():
    """Processor seconds of this process and its children."""

    def of(pid):
        try:
            with open(f"/proc/{pid}/stat") as file:
                return sum(int(n) for n in file.read().rsplit(")", 1)[1].split()[11:15])
        except OSError:
            return 0

    children = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children") as file:
            children += file.read().split()
    return (of("self") + sum(map(of, children))) / os.sysconf("SC_CLK_TCK")


def emit(name, seconds, samples):
    seconds = sorted(seconds)
    row = {"name": name, "threads": 1, "median_s": seconds[len(seconds) // 2], "min_s": seconds[0]}
    print(json.dumps({**row, "unit": "sample/s", "rate": round(samples / seconds[0])}), flush=True)


def passes(name, samples, loader):
    wall, cpu = [], []
    for _ in range(4):
        batches = iter(loader)
        next(batches)
        began, used = time.perf_counter(), processor()
        for _ in batches:
            pass
        wall.append(time.perf_counter() - began)
        cpu.append(processor() - used)
    emit(name, wall, samples)
    emit(f"{name}_cpu", cpu, samples)


class Tokens:
    """Windows of a mapped file."""

    def __init__(self, path):
        self.path, self.count, self.data = path, os.path.getsize(path) // 2 // WINDOW, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        import numpy as np
        import torch

        if self.data is None:
            self.data = np.memmap(self.path, np.uint16, "r")
        window = torch.from_numpy(self.data[index * WINDOW : (index + 1) * WINDOW + 1].astype(np.int64))
        return window[:-1], window[1:]


def transform():
    import torch
    from torchvision.transforms import v2

    steps = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
    return v2.Compose([*steps, v2.Normalize(MEAN, STD)])


def loaders(wants):
    import torch
    import torchvision
    from torch.utils.data import DataLoader
    from torchvision.io import ImageReadMode, decode_image

    torch.set_num_threads(1)
    samples = IMAGES // BATCH * BATCH - BATCH
    if wants("images_jpeg_workers2"):
        read = lambda path: decode_image(path, ImageReadMode.RGB)
        images = torchvision.datasets.ImageFolder(os.path.join(FOLDER, "jpeg"), transform(), loader=read)
        loader = DataLoader(images, BATCH, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
        passes("images_jpeg_workers2", samples, loader)
    if wants("images_tar_workers2"):
        import webdataset

        crop = transform()

        def decode(sample):
            data = torch.frombuffer(bytearray(sample["jpg"]), dtype=torch.uint8)
            return crop(decode_image(data, ImageReadMode.RGB)), int(sample["cls"])

        shards = os.path.join(FOLDER, "tar", "shard-{0000..0003}.tar")
        images = webdataset.WebDataset(shards, shardshuffle=False).shuffle(256).map(decode)
        loader = DataLoader(images, BATCH, num_workers=2, drop_last=True, persistent_workers=True)
        passes("images_tar_workers2", samples, loader)
    if wants("tokens_workers2"):
        tokens = Tokens(os.path.join(FOLDER, "tokens.bin"))
        loader = DataLoader(tokens, 16, num_workers=2, drop_last=True, persistent_workers=True)
        passes("tokens_workers2", len(tokens) // 16 * 16 - 16, loader)


def parquet(wants):
    import pyarrow.parquet as pq
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    class Rows(IterableDataset):
        def __iter__(self):
            worker = get_worker_info()
            for i in range(worker.id, 4, worker.num_workers):
                file = pq.ParquetFile(os.path.join(FOLDER, "parquet", f"part-{i:04}.parquet"))
                for batch in file.iter_batches(4096):
                    labels = batch.column("label").to_numpy()
                    features = batch.column("features").flatten().to_numpy().reshape(len(labels), -1)
                    for row, label in zip(torch.tensor(features), labels):
                        yield row, int(label)

    if wants("parquet_workers2"):
        loader = DataLoader(Rows(), 256, num_workers=2, drop_last=True, persistent_workers=True)
        passes("parquet_workers2", ROWS - 256, loader)


def transforms(wants, budget, turns):
    import torch
    from torchvision.io import ImageReadMode, decode_image, read_file
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional as F

    torch.set_num_threads(1)
    data = read_file(os.path.join(FOLDER, "jpeg", "class0", "00000.jpg"))
    image = decode_image(data, ImageReadMode.RGB)
    small = F.resize(image, [224, 224], antialias=True)
    floats = F.to_dtype(small, torch.float32, True)
    cubic = InterpolationMode.BICUBIC
    rows = {
        "decode_jpeg": lambda: decode_image(data, ImageReadMode.RGB),
        "resize_256": lambda: F.resize(image, [256], antialias=True),
        "resize_bicubic_256": lambda: F.resize(image, [256], cubic, antialias=True),
        "resized_crop_224": lambda: F.resized_crop(image, 40, 60, 280, 300, [224, 224], antialias=True),
        "resize_f32_128": lambda: F.resize(floats, [128], antialias=True),
        "center_crop_224": lambda: F.center_crop(image, [224, 224]).contiguous(),
        "horizontal_flip": lambda: F.horizontal_flip(small),
        "pad_4": lambda: F.pad(small, [4] * 4),
        "brightness": lambda: F.adjust_brightness(small, 1.2),
        "contrast": lambda: F.adjust_contrast(small, 1.2),
        "saturation": lambda: F.adjust_saturation(small, 1.2),
        "hue": lambda: F.adjust_hue(small, 0.1),
        "grayscale": lambda: F.rgb_to_grayscale(small, 3).contiguous(),
        "blur_5": lambda: F.gaussian_blur(small, [5, 5], [1.0, 1.0]),
        "rotate_30": lambda: F.rotate(small, 30.0),
        "equalize": lambda: F.equalize(small),
        "autocontrast": lambda: F.autocontrast(small),
        "posterize": lambda: F.posterize(small, 4),
        "to_float": lambda: F.to_dtype(small, torch.float32, True),
        "normalize": lambda: F.normalize(floats, MEAN, STD),
    }
    for name, call in rows.items():
        name = f"transform_{name}"
        if not wants(name):
            continue

        def once(n):
            began = time.perf_counter()
            for _ in range(n):
                call()
            return (time.perf_counter() - began) / n

        once(2)
        count = max(1, int(2e-3 / once(3)))
        while True:
            if turns:
                print(json.dumps({"turn": name}), flush=True)
                if sys.stdin.readline().strip() != "go":
                    break
            once(count)
            seconds, began = [], time.perf_counter()
            while len(seconds) < 2 or time.perf_counter() - began < budget:
                seconds.append(once(count))
            seconds.sort()
            row = {"name": name, "threads": 1, "median_s": seconds[len(seconds) // 2], "min_s": seconds[0], "unit": "us"}
            print(json.dumps({**row, "rate": seconds[0] * 1e6}), flush=True)
            if not turns:
                break


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("section", nargs="?", default="loaders", choices=["loaders", "parquet", "transforms"])
parser.add_argument("--make", action="store_true")
parser.add_argument("--filter", default="")
parser.add_argument("--threads")
parser.add_argument("--turns", action="store_true")
parser.add_argument("--budget", type=float, default=0.5)
args = parser.parse_args()
make()
if not args.make:
    wants = lambda name: args.filter in name
    match args.section:
        case "loaders":
            loaders(wants)
        case "parquet":
            parquet(wants)
        case _:
            transforms(wants, args.budget, args.turns)
