"""Writes the images that the tests of ImageFolder read, and beside each one NAME.rgb: the pixels that
PIL reads from it, then those of Resize(10), CenterCrop(8) and of Resize(22), CenterCrop(14). The files
of the repository come from PIL 13.0 and torchvision 0.29.

    python tools/golden/image_files.py tests/fixtures/images
"""

import io
import pathlib
import struct
import sys

import numpy as np
from PIL import Image
from torchvision import transforms

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
# Sides that are no multiple of anything.
WIDTH, HEIGHT = 21, 17
y, x = np.mgrid[:HEIGHT, :WIDTH]
waves = [128 + 120 * np.sin(x / a + y / b + c) for a, b, c in [(4, 7, 0), (9, 5, 1), (6, -8, 2)]]
picture = Image.fromarray(np.stack(waves, 2).astype("u1"))


def write(name, data):
    (out / name).write_bytes(data)
    image = Image.open(io.BytesIO(data)).convert("RGB")
    sizes = [[], [transforms.Resize(10), transforms.CenterCrop(8)], [transforms.Resize(22), transforms.CenterCrop(14)]]
    pixels = [transforms.Compose(steps)(image).tobytes() for steps in sizes]
    (out / name).with_suffix(".rgb").write_bytes(b"".join(pixels))


def saved(image, format, **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def bitmap(bits, compression, palette, rows):
    """Without PIL, which writes neither half bytes, nor runs, nor 16 bits."""
    start = 54 + len(palette)
    head = struct.pack("<2sIIIIiiHHIIiiII", b"BM", start + len(rows), 0, start, 40, WIDTH, HEIGHT, 1, bits, compression, len(rows), 0, 0, 0, 0)
    return head + palette + rows


def filled(row, multiple):
    return row + bytes(-len(row) % multiple)


def runs(row):
    """RLE4: two runs, then the rest one by one, then the end of the row."""
    rest = row[12:]
    halves = np.append(rest, [0] * (len(rest) % 2)).reshape(-1, 2)
    literal = filled((halves[:, 0] << 4 | halves[:, 1]).astype("u1").tobytes(), 2)
    return bytes([5, row[0] << 4 | row[1], 7, row[8] * 17, 0, len(rest)]) + literal + b"\0\0"


write("colour.jpg", saved(picture, "JPEG", quality=90))
write("progressive.jpg", saved(picture, "JPEG", quality=85, progressive=True, subsampling="4:2:2", restart_marker_rows=1))
write("grey.jpg", saved(picture.convert("L"), "JPEG"))
cmyk = saved(picture.convert("CMYK"), "JPEG", quality=90)
write("cmyk.jpg", cmyk)
adobe = cmyk.index(b"Adobe") + 11
write("ycck.jpg", cmyk[:adobe] + b"\2" + cmyk[adobe + 1 :])
palette = picture.quantize(13)
write("palette.png", saved(palette, "PNG", transparency=3))
indices = np.asarray(palette)
colours = b"".join(bytes([b, g, r, 0]) for r, g, b in zip(*[iter(palette.getpalette()[:48])] * 3))
colours += bytes(64 - len(colours))
nibbles = np.pad(indices, ((0, 0), (0, 1))).reshape(HEIGHT, -1, 2)
packed = (nibbles[:, :, 0] << 4 | nibbles[:, :, 1]).astype("u1")
write("nibbles.bmp", bitmap(4, 0, colours, b"".join(filled(row.tobytes(), 4) for row in packed[::-1])))
write("runs.bmp", bitmap(4, 2, colours, b"".join(runs(row) for row in indices[::-1]) + b"\0\1"))
r, g, b = (np.asarray(picture, "u2") >> 3).transpose(2, 0, 1)
write("short.bmp", bitmap(16, 0, b"", b"".join(filled(row.tobytes(), 4) for row in (r << 10 | g << 5 | b)[::-1])))
