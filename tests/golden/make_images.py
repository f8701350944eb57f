"""Pictures of every kind that Pillow reads as JPEG and PNG, in tests/golden/images/, and what it
makes of them: images.txt, for images_test.c. Lines:

    decode FILE HEIGHT WIDTH RGB GREY              hashes (FNV-1a) of convert("RGB"), convert("L")
    guess FILE HEIGHT WIDTH RGB GREY               the same, of a file without its last scans: what
                                                   libjpeg guesses depends on its version
    crop FILE LEFT TOP RIGHT BOTTOM HEIGHT WIDTH RGB   crop, then resize with BILINEAR
    box FILE LEFT TOP RIGHT BOTTOM HEIGHT WIDTH RGB    resize with this box, in parts of pixels

    pip install 'pillow>=12.2,<13' numpy; python3 tests/golden/make_images.py

Pillow 13 resizes in another order: its bits differ."""
import io
import os
import struct
import warnings
import zlib

import numpy
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "images")
HEIGHT, WIDTH = 61, 83

random = numpy.random.default_rng(7)


def picture(channels, height=HEIGHT, width=WIDTH):
    """Slopes, edges and some noise, as in photographs."""
    y, x, c = numpy.mgrid[:height, :width, :channels]
    smooth = 128 + 90 * numpy.sin(x / 17 + c) * numpy.cos(y / 11 - c) + 30 * ((x // 9 + y // 7) % 2)
    return numpy.clip(smooth + random.normal(0, 4, smooth.shape), 0, 255).astype(numpy.uint8)


def jpeg(array, mode=None, **options):
    file = io.BytesIO()
    Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array, mode).save(file, "JPEG", **options)
    return file.getvalue()


def bits(rows, depth):
    """Rows of samples, packed most significant bit first."""
    if depth == 16:
        return [struct.pack(">%dH" % len(row), *row) for row in rows]
    if depth == 8:
        return [bytes(row) for row in rows]
    packed = []
    for row in rows:
        text = "".join(format(v, "0%db" % depth) for v in row)
        text += "0" * (-len(text) % 8)
        packed.append(bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8)))
    return packed


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(array, depth, colour, interlace=False, extra=b""):
    height, width = array.shape[:2]
    passes = [(0, 0, 1, 1)]
    if interlace:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2),
                  (0, 1, 2, 2), (1, 0, 2, 1)]
    data = b""
    for top, left, down, right in passes:
        part = array[top::down, left::right]
        if part.size > 0:
            rows = bits([row.ravel().tolist() for row in part], depth)
            data += b"".join(b"\0" + row for row in rows)
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace))
            + extra + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def jpegs():
    rgb, grey, cmyk = picture(3), picture(1), picture(4)
    exif = Image.Exif()
    exif[0x112] = 6  # turned by a quarter, which nobody looks at
    for name, sampling in (("444", "4:4:4"), ("422", "4:2:2"), ("420", "4:2:0")):
        yield name + ".jpg", jpeg(rgb, quality=80, subsampling=sampling)
        yield name + "_progressive.jpg", jpeg(rgb, quality=80, subsampling=sampling, progressive=True)
    yield "grey.jpg", jpeg(grey, quality=70)
    yield "grey_progressive.jpg", jpeg(grey, quality=70, progressive=True)
    yield "restart_blocks.jpg", jpeg(rgb, quality=60, restart_marker_blocks=3)
    yield "restart_rows.jpg", jpeg(rgb, quality=60, restart_marker_rows=1)
    yield "rgb.jpg", jpeg(rgb, quality=60, keep_rgb=True)
    yield "exif.jpg", jpeg(rgb, quality=30, exif=exif)
    yield "cmyk.jpg", (inks := jpeg(cmyk, "CMYK", quality=60))
    at = inks.index(b"Adobe") + 11  # the transform: the same numbers, as YCCK
    yield "ycck.jpg", inks[:at] + b"\2" + inks[at + 1:]
    for height, width in ((1, 1), (1, 40), (40, 1), (16, 16), (17, 33), (7, 9)):
        yield "%dx%d.jpg" % (height, width), jpeg(picture(3, height, width), quality=75)
    # What libjpeg carries on from: the end of the data is missing, or the last scans are.
    whole = jpeg(rgb, quality=80)
    yield "cut_with_end.jpg", whole[:len(whole) * 2 // 3] + b"\xff\xd9"
    whole = jpeg(rgb, quality=80, progressive=True)
    cut = whole.rindex(b"\xff\xc4", 0, whole.rindex(b"\xff\xc4"))
    yield "cut_with_end_progressive.jpg", whole[:cut] + b"\xff\xd9"
    yield "more_after_the_end.jpg", jpeg(rgb, quality=40) + b"and more"


def pngs():
    small = picture(4, 21, 29)
    rgb, grey = small[:, :, :3], small[:, :, :1]
    wide = random.integers(0, 65536, (21, 29, 4))
    wide[:5] //= 256  # Pillow cuts grey ones off at 255
    colours = random.integers(0, 256, 3 * 256, dtype=numpy.uint8).tobytes()
    yield "rgb.png", png(rgb, 8, 2)
    yield "rgba.png", png(small, 8, 6)
    yield "grey.png", png(grey, 8, 0)
    yield "grey_alpha.png", png(small[:, :, :2], 8, 4)
    yield "grey_colour_is_transparent.png", png(grey, 8, 0, extra=chunk(b"tRNS", b"\0\x80"))
    yield "gamma.png", png(rgb, 8, 2, extra=chunk(b"gAMA", struct.pack(">I", 100000)))
    for depth in (1, 2, 4):
        yield "grey_%d.png" % depth, png(grey >> (8 - depth), depth, 0)
        yield "palette_%d.png" % depth, png(grey >> (8 - depth), depth, 3,
                                            extra=chunk(b"PLTE", colours[:3 << depth]))
    yield "palette.png", png(grey, 8, 3, extra=chunk(b"PLTE", colours) + chunk(b"tRNS", b"\0\x80"))
    yield "palette_short.png", png(grey, 8, 3, extra=chunk(b"PLTE", colours[:300]))
    yield "grey_16.png", png(wide[:, :, :1], 16, 0)
    yield "grey_alpha_16.png", png(wide[:, :, :2], 16, 4)
    yield "rgb_16.png", png(wide[:, :, :3], 16, 2)
    yield "rgba_16.png", png(wide, 16, 6)
    yield "interlaced.png", png(rgb, 8, 2, True)
    yield "interlaced_grey_1.png", png(grey >> 7, 1, 0, True)
    yield "interlaced_palette.png", png(grey >> 4, 4, 3, True, chunk(b"PLTE", colours[:48]))
    yield "interlaced_1x1.png", png(rgb[:1, :1], 8, 2, True)


def fnv(image):
    value = 0xcbf29ce484222325
    for byte in image.tobytes():
        value = (value ^ byte) * 0x100000001b3 % 2 ** 64
    return "%016x" % value


def main():
    os.makedirs(FOLDER, exist_ok=True)
    warnings.simplefilter("ignore")
    with open(os.path.join(HERE, "images.txt"), "w", encoding="ascii") as out:
        for name, data in [*jpegs(), *pngs()]:
            with open(os.path.join(FOLDER, name), "wb") as file:
                file.write(data)
            image = Image.open(io.BytesIO(data))
            out.write("%s %s %d %d %s %s\n" % (
                "guess" if name == "cut_with_end_progressive.jpg" else "decode", name, image.height,
                image.width, fnv(image.convert("RGB")), fnv(image.convert("L"))))
        image = Image.open(os.path.join(FOLDER, "444.jpg")).convert("RGB")
        for i in range(200):
            size = [int(v) for v in numpy.exp(random.uniform(0, 4.6, 2))]
            left, right = sorted(random.uniform(0, WIDTH, 2))
            top, bottom = sorted(random.uniform(0, HEIGHT, 2))
            box = [left, top, right, bottom]
            if i % 2 == 0:
                box = [int(left), int(top), int(right) + 1, int(bottom) + 1]
                result = image.crop(box).resize(size[::-1], Image.BILINEAR)
            else:
                result = image.resize(size[::-1], Image.BILINEAR, box=box)
            out.write("%s 444.jpg %s %d %d %s\n" % ("box" if i % 2 else "crop",
                                                    " ".join(repr(float(v)) for v in box),
                                                    size[0], size[1], fnv(result)))


main()
