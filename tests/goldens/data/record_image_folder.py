# SPDX-License-Identifier: Apache-2.0
"""Writes image_folder.json and the folder of images beside it: what Keras makes of such a folder.

A case has the names of the classes and, by part ("training", "validation"), the files in the order
before epochs are shuffled, and the elements of two epochs as texts, as in sequences.json.
tests/data/image_folder_test.cc opens the folder with the same options, by the names of the cases.

    python3 record_image_folder.py
"""

import json
import os
import struct

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf

from record import element_text

FOLDER = os.path.dirname(os.path.abspath(__file__))
TOP = "image_folder"


def bmp(pixels):
    height, width, _ = pixels.shape
    body = b"".join(row[:, ::-1].tobytes() + b"\0" * (-row.size % 4) for row in pixels[::-1])
    return (b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, 54) +
            struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(body), 0, 0, 0, 0) + body)


def gif(colours, width, height):
    """Of four colours, one of them in each pixel, uncompressed: a clear code before every pair."""
    bits = []
    for i in range(width * height):
        codes = ([4] if i % 2 == 0 else []) + [i * 7 % 4]
        for code in codes:
            bits += [code >> b & 1 for b in range(3)]
    bits += [1, 0, 1]
    bits += [0] * (-len(bits) % 8)
    data = bytes(sum(bits[i + b] << b for b in range(8)) for i in range(0, len(bits), 8))
    return (b"GIF89a" + struct.pack("<HHBBB", width, height, 0x81, 0, 0) + colours.tobytes() +
            b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02" + bytes([len(data)]) +
            data + b"\0;")


def write_images():
    rng = np.random.default_rng(3)

    def pixels(height, width, channels):
        y, x = np.mgrid[0:height, 0:width]
        waves = [np.sin(x * a + y * b + c) for a, b, c in rng.uniform(0, 2, (channels, 3))]
        return np.clip((np.stack(waves, -1) + 1) * 127.5, 0, 255).astype(np.uint8)

    def write(name, content):
        path = os.path.join(FOLDER, TOP, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(content)

    def png(*shape):
        return tf.io.encode_png(pixels(*shape)).numpy()

    def jpeg(*shape):
        return tf.io.encode_jpeg(pixels(*shape)).numpy()

    write("birds/1.gif", gif(rng.integers(0, 256, (4, 3), np.uint8), 6, 5))
    write("birds/2.bmp", bmp(pixels(5, 3, 3)))
    write("cats/1.png", png(7, 5, 3))
    write("cats/10.png", png(4, 9, 1))
    write("cats/2.PNG", png(3, 4, 4))
    write("cats/a/1.png", png(8, 8, 3))
    write("cats/a-b/1.png", png(1, 12, 3))
    write("cats/a/b/1.png", png(5, 6, 3))
    write("dogs/1.jpg", jpeg(6, 8, 3))
    write("dogs/2.JPeG", jpeg(9, 5, 1))
    write("dogs/3.png", png(11, 3, 4))
    write("dogs/notes.txt", b"no image\n")
    write(".hidden/1.png", png(2, 2, 3))
    write("empty/notes.txt", b"no image\n")


def cases():
    def opened(**options):
        options.setdefault("image_size", (3, 4))
        options.setdefault("shuffle", False)
        options.setdefault("batch_size", 4)
        return keras.utils.image_dataset_from_directory(TOP, verbose=False, **options)

    return {
        "plain": lambda: opened(),
        "single": lambda: opened(batch_size=None, image_size=(2, 2)),
        "shuffled": lambda: opened(shuffle=True, seed=7, batch_size=1, label_mode="categorical"),
        "large_seed": lambda: opened(shuffle=True, seed=2**32 - 1, batch_size=3),
        "split": lambda: opened(shuffle=True, seed=5, batch_size=1, validation_split=0.39,
                                subset="both"),
        "split_in_order": lambda: opened(validation_split=0.25, subset="both"),
        "binary": lambda: opened(class_names=["dogs", "cats"], label_mode="binary",
                                 color_mode="grayscale"),
        "with_alpha": lambda: opened(class_names=["cats"], color_mode="rgba"),
        "cropped": lambda: opened(image_size=(4, 2), crop_to_aspect_ratio=True),
        "padded": lambda: opened(class_names=["birds", "dogs"], image_size=(4, 6),
                                 pad_to_aspect_ratio=True),
        "no_labels": lambda: opened(labels=None, label_mode=None),
        "nearest": lambda: opened(interpolation="nearest"),
        "nearest_cropped": lambda: opened(interpolation="nearest", crop_to_aspect_ratio=True,
                                          image_size=(3, 3)),
    }


def record(opened):
    parts = opened if isinstance(opened, list) else [opened]
    result = {"classes": parts[0].class_names or []}
    for name, part in zip(("training", "validation"), parts):
        # Keras leaves pixels that are not interpolated bytes; they are floats here, as all others.
        floats = part.map(lambda x, *y: (tf.cast(x, tf.float32), *y))
        result[name] = {"files": part.file_paths,
                        "epochs": [[element_text(e) for e in floats] for _ in range(2)]}
    return result


def main():
    os.chdir(FOLDER)
    write_images()
    found = {name: record(opened()) for name, opened in cases().items()}
    with open("image_folder.json", "w") as f:
        json.dump(found, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
