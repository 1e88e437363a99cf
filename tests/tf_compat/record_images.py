# SPDX-License-Identifier: Apache-2.0
"""Records how TensorFlow reads and writes files of images.

    python record_images.py [NUMBER SEED FILE]
writes ../goldens/kernels/cases_images.pb; see record_kernels.py. With arguments: that many random
cases beyond, into FILE, for a comparison that is not kept.
"""
import struct
import sys

from record_kernels import Recorder, np, tf


def kept(file):
    """Bytes as NumPy leaves them alone: it cuts zeros off the end of others."""
    return np.array(file, object)


def bmp(pixels, from_top=False):
    height, width, channels = pixels.shape
    body = b"".join(row.tobytes() + b"\0" * (-row.size % 4) for row in pixels)
    return (b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, 54) +
            struct.pack("<IiiHHIIiiII", 40, width, -height if from_top else height, 1,
                        8 * channels, 0, len(body), 0, 0, 0, 0) + body)


def packed(indices, bits):
    """LZW in blocks, as GIF has it."""
    clear = 1 << bits
    out, held, have = bytearray(), 0, 0

    def put(code, width):
        nonlocal held, have
        held |= code << have
        have += width
        while have >= 8:
            out.append(held & 255)
            held >>= 8
            have -= 8

    def fresh():
        return {bytes([i]): i for i in range(clear)}, clear + 2, bits + 1

    known, following, width = fresh()
    put(clear, width)
    run = b""
    for index in indices:
        longer = run + bytes([index])
        if longer in known:
            run = longer
            continue
        put(known[run], width)
        if following < 4096:
            known[longer] = following
            following += 1
            if following - 1 == 1 << width and width < 12:
                width += 1
        else:
            put(clear, width)
            known, following, width = fresh()
        run = bytes([index])
    put(known[run], width)
    put(clear + 1, width)
    if have:
        out.append(held & 255)
    blocks = [bytes(out[i:i + 255]) for i in range(0, len(out), 255)]
    return bytes([bits]) + b"".join(bytes([len(b)]) + b for b in blocks) + b"\0"


def gif(rng, frames, bits=3):
    """Frames: (left, top, width, height, interlaced, colours of its own, transparent, disposal)."""
    def colours():
        return rng.integers(0, 256, 3 << bits, np.uint8).tobytes()

    out = b"GIF89a" + struct.pack("<HHBBB", *frames[0][2:4], 0x80 | (bits - 1), 0, 0) + colours()
    for left, top, width, height, interlaced, own, transparent, disposal in frames:
        out += b"\x21\xf9\x04" + struct.pack("<BHB", disposal << 2 | (transparent >= 0), 0,
                                             max(transparent, 0)) + b"\0"
        out += b"," + struct.pack("<HHHHB", left, top, width, height,
                                  (0x40 if interlaced else 0) | (0x80 | (bits - 1) if own else 0))
        out += colours() if own else b""
        out += packed(rng.integers(0, 1 << bits, width * height).tolist(), max(bits, 2))
    return out + b";"


def random_gif(rng, count):
    width, height = (int(v) for v in rng.integers(1, 40, 2))
    frames = [(0, 0, width, height, bool(rng.integers(2)), False, int(rng.integers(-1, 2)), 0)]
    for _ in range(count - 1):
        left, top = int(rng.integers(0, width)), int(rng.integers(0, height))
        frames.append((left, top, int(rng.integers(1, width - left + 1)),
                       int(rng.integers(1, height - top + 1)), bool(rng.integers(2)),
                       bool(rng.integers(2)), int(rng.integers(-1, 4)), int(rng.integers(0, 4))))
    return gif(rng, frames, int(rng.integers(1, 9)))


def pixels(rng, channels, most=40, dtype=np.uint8):
    """Smooth in part, as images are, so that transforms have something to round."""
    height, width = rng.integers(1, most, 2)
    top = np.iinfo(dtype).max
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x * a + y * b + c) for a, b, c in rng.uniform(0, 2, (channels, 3))]
    noise = rng.normal(size=(height, width, channels)) * rng.choice([0, .1, .5])
    return np.clip((np.stack(waves, -1) + noise + 1) * top / 2, 0, top).astype(dtype)


def written(op, image, **attrs):
    return getattr(tf.raw_ops, op)(image=tf.constant(image), **attrs).numpy()


def any_jpeg(rng):
    attrs = dict(quality=int(rng.integers(1, 101)), progressive=bool(rng.integers(2)),
                 optimize_size=bool(rng.integers(2)), chroma_downsampling=bool(rng.integers(2)))
    image = pixels(rng, int(rng.choice([1, 3])), 70)
    return image, attrs, written("EncodeJpeg", image, **attrs)


def record_jpeg(r, rng):
    image, attrs, file = any_jpeg(rng)
    r.add("EncodeJpeg", {"image": image}, bits=True, **attrs)
    reading = dict(channels=int(rng.choice([0, 1, 3])), ratio=int(rng.choice([1, 2, 4, 8])),
                   fancy_upscaling=bool(rng.integers(2)),
                   dct_method=str(rng.choice(["", "INTEGER_FAST", "INTEGER_ACCURATE"])))
    r.add("DecodeJpeg", {"contents": kept(file)}, bits=True, **reading)
    sides = [-(-n // reading["ratio"]) for n in image.shape[:2]]
    at = [int(rng.integers(0, n)) for n in sides]
    window = at + [int(rng.integers(1, n - a + 1)) for n, a in zip(sides, at)]
    r.add("DecodeAndCropJpeg", {"contents": kept(file), "crop_window": np.int32(window)}, bits=True,
          **reading)
    r.add("ExtractJpegShape", {"contents": kept(file)}, bits=True,
          output_type=tf.int64 if rng.integers(2) else tf.int32)
    return file


def record_png(r, rng):
    wide = bool(rng.integers(2))
    image = pixels(rng, int(rng.integers(1, 5)), 40, np.uint16 if wide else np.uint8)
    file = written("EncodePng", image)
    r.add("EncodePng", {"image": image}, bits=True, compression=int(rng.integers(-1, 10)))
    r.add("DecodePng", {"contents": kept(file)}, bits=True, channels=int(rng.choice([0, 1, 3, 4])),
          dtype=tf.uint16 if rng.integers(2) else tf.uint8)
    return file


def record_any(r, rng, file, channels):
    """The file by DecodeImage, to a random type."""
    dtype = (tf.uint8, tf.uint16, tf.float32)[rng.integers(3)]
    r.add("DecodeImage", {"contents": kept(file)}, bits=True, dtype=dtype,
          channels=int(rng.choice(channels)), expand_animations=bool(rng.integers(2)))


def record_round(r, rng):
    record_any(r, rng, record_jpeg(r, rng), [0, 1, 3])
    record_any(r, rng, record_png(r, rng), [0, 1, 3, 4])
    image = pixels(rng, int(rng.choice([1, 3, 4])))
    r.add("DecodeBmp", {"contents": kept(bmp(image, bool(rng.integers(2))))}, bits=True,
          channels=int(rng.choice([0, 3, 4])))
    # TensorFlow crashes where rows from the top become anything but uint8.
    record_any(r, rng, bmp(image), [0, 3, 4])
    file = random_gif(rng, int(rng.integers(1, 5)))
    r.add("DecodeGif", {"contents": kept(file)}, bits=True)
    record_any(r, rng, file, [0, 3])


def record_rest(r, rng):
    image = pixels(rng, 3)
    jpeg, png, still = written("EncodeJpeg", image), written("EncodePng", image), random_gif(rng, 1)
    moving, flat = random_gif(rng, 2), bmp(image)
    for file in (jpeg, png, still):
        for op in ("DecodeJpeg", "DecodePng", "DecodeGif"):
            r.add(op, {"contents": kept(file)}, bits=True)
    r.add("DecodePng", {"contents": kept(jpeg)}, bits=True, dtype=tf.uint16)
    r.add("EncodePng", {"image": np.stack([[image, image]] * 2)}, bits=True)
    r.add("EncodeJpeg", {"image": image}, bits=True, format="rgb", density_unit="cm", x_density=7,
          y_density=9, xmp_metadata="<x/>")
    r.add("EncodeJpegVariableQuality", {"images": image, "quality": np.int32(40)}, bits=True)
    for op, file, text in (
            ("DecodePng", b"", "Input is empty"), ("DecodeImage", b"text", "Unknown image file"),
            ("DecodePng", png[:-20], "PNG"), ("DecodeJpeg", jpeg[:-20], "Invalid JPEG data"),
            ("DecodeJpeg", jpeg[:40], "Invalid JPEG data"), ("DecodeGif", b"GIF89a", "GIF data"),
            ("DecodeBmp", b"BM", "Incomplete bmp content"), ("DecodeBmp", flat[:-1], "Input size"),
            ("DecodeBmp", png, "Use `decode_png`"), ("DecodeBmp", jpeg, "Use `decode_jpeg`"),
            ("DecodePng", flat, "Op used: DecodePng"), ("DecodePng", moving, "Got 2 frames"),
            ("ExtractJpegShape", png, "JPEG data")):
        r.add(op, {"contents": kept(file)}, error=text)
    for op, file, channels, text in (("DecodeJpeg", jpeg, 2, "must be 0, 1, 3 or 4 but got 2"),
                                     ("DecodeJpeg", jpeg, 4, "JPEG does not support 4 channels"),
                                     ("DecodeImage", moving, 1, "channels must be 0 or 3 for GIF"),
                                     ("DecodeBmp", flat, 1, "must be 0, 3 or 4 for BMP")):
        r.add(op, {"contents": kept(file)}, error=text, channels=channels)
    for window in ([0, 0, 0, 1], [-1, 0, 2, 2], [0, 0, 500, 1]):
        r.add("DecodeAndCropJpeg", {"contents": kept(jpeg), "crop_window": np.int32(window)},
              error="crop window")
    r.add("DecodeAndCropJpeg", {"contents": kept(png), "crop_window": np.int32([0, 0, 1, 1])},
          error="but detected PNG")
    r.add("DecodeJpeg", {"contents": kept(jpeg)}, error="ratio must be 1, 2, 4, or 8", ratio=3)
    r.add("EncodeJpeg", {"image": image}, error="quality must be in [0,100]", quality=101)
    r.add("EncodePng", {"image": image}, error="should be in [-1,9]", compression=10)
    r.add("EncodePng", {"image": np.zeros((2, 2, 5), np.uint8)}, error="1, 2, 3, or 4 channels")
    r.add("EncodeJpeg", {"image": np.zeros((2, 2, 2), np.uint8)}, error="1 or 3 channels")
    r.add("EncodeJpeg", {"image": image}, error="expects 1 channels", format="grayscale")


def main():
    more = len(sys.argv) > 1
    rng = np.random.default_rng(int(sys.argv[2]) if more else 20)
    recorder = Recorder("images")
    if not more:
        record_rest(recorder, rng)
    for _ in range(int(sys.argv[1]) // 13 if more else 4):
        record_round(recorder, rng)
    recorder.write(sys.argv[3] if more else "cases_images.pb")


if __name__ == "__main__":
    main()
