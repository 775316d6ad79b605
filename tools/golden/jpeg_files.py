"""Writes baseline JPEG files of several samplings, and beside each one NAME.rgb: the pixels that PIL reads from it.

    python tools/golden/jpeg_files.py tests/fixtures/jpeg
"""

import pathlib
import sys

import numpy as np
from PIL import Image

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)


def picture(width, height):
    """Waves, with noise and an edge."""
    y, x = np.mgrid[:height, :width]
    waves = [128 + 90 * np.sin(x / a + y / b + c) for a, b, c in [(4, 7, 0), (9, 5, 1), (6, -8, 2)]]
    noise = np.random.default_rng(1).integers(-30, 30, (height, width, 1))
    pixels = np.stack(waves, 2) + noise + 60 * (x > width // 2)[..., None]
    return Image.fromarray(pixels.clip(0, 255).astype("u1"))


for name, size, options in [
    ("wide_420", (301, 37), dict(quality=50, subsampling="4:2:0")),
    ("half_422", (45, 33), dict(quality=90, subsampling="4:2:2", restart_marker_blocks=2)),
    ("full_444", (37, 29), dict(quality=100, subsampling="4:4:4", optimize=True)),
    ("parts_420", (70, 50), dict(quality=80, subsampling="4:2:0", restart_marker_rows=1)),
    ("thin_420", (3, 40), dict(quality=80, subsampling="4:2:0")),
    ("point_444", (1, 1), dict(quality=80, subsampling="4:4:4")),
    ("grey", (40, 19), dict(quality=70)),
]:
    image = picture(*size)
    image = image.convert("L") if name == "grey" else image
    path = out / f"{name}.jpg"
    image.save(path, **options)
    path.with_suffix(".rgb").write_bytes(Image.open(path).convert("RGB").tobytes())
