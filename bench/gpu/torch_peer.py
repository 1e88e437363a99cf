#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The workloads of gpu_bench in torch: a line of JSON for each, milliseconds of a step.

    torch_peer.py [--only NAME]... [--seconds S] [--small] [--device cuda]

Each is timed as ours are: from the call to the moment when the device has finished. "eager" is
torch as people write it, "graph" the same step captured as a CUDA graph, "compile" torch.compile.
Exits with 3 where there is no torch or no GPU.
"""

import argparse
import json
import sys
import time

NAMES = ["tiny_chain", "mlp", "cnn", "gemm_bf16", "gemm_tf32", "gemm_f32", "gemm_batched",
         "elementwise", "resnet50"]


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", choices=NAMES)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


FLAGS = parse()

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    print(f"torch_peer: {error}", file=sys.stderr)
    sys.exit(3)

DEVICE = torch.device(FLAGS.device)
CUDA = DEVICE.type == "cuda"
if CUDA and not torch.cuda.is_available():
    print("torch_peer: torch sees no GPU", file=sys.stderr)
    sys.exit(3)


# As ours: convolutions in float32 are in float32. gemm("tf32") says what it wants.
torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_tf32 = False


def synchronize():
    if CUDA:
        torch.cuda.synchronize()


def report(name, value):
    print(json.dumps({"name": name, "value": value}), flush=True)


def measure(step, warm=5):
    for _ in range(warm):
        step()
    synchronize()
    begin = time.perf_counter()
    step()
    synchronize()
    one = time.perf_counter() - begin
    steps = min(10000, max(5, int(FLAGS.seconds / one)))
    begin = time.perf_counter()
    for _ in range(steps):
        step()
        synchronize()
    return 1e3 * (time.perf_counter() - begin) / steps


def captured(step):
    """The step as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def ways(name, step, compiled=None):
    """Times the step in all ways; one that torch cannot do is told and left out."""
    report(f"{name}.torch_eager", measure(step))
    if CUDA:
        try:
            report(f"{name}.torch_graph", measure(captured(step)))
        except RuntimeError as error:
            print(f"torch_peer: {name} as a graph: {error}", file=sys.stderr)
    if compiled is not None and CUDA:
        try:
            report(f"{name}.torch_compile", measure(compiled, warm=10))
        except Exception as error:  # whatever the compiler's back ends raise
            print(f"torch_peer: {name} compiled: {error}", file=sys.stderr)


def tiny_chain():
    parts = 10 if FLAGS.small else 1000
    x = torch.randn(1024, device=DEVICE)
    little = 1e-3 * torch.randn(1024, device=DEVICE)

    def step():
        y = x
        for _ in range(parts):
            y = y + little
        return y

    with torch.no_grad():
        ways("tiny_chain", step)


def training(name, model, x, labels, optimizer):
    def step():
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()

    ways(name, step)


def labels_of(batch, classes):
    return torch.arange(batch, device=DEVICE) * 7 % classes


def mlp():
    batch, hidden = (4, 16) if FLAGS.small else (128, 512)
    model = nn.Sequential(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                          nn.Linear(hidden, 10)).to(DEVICE)
    x = torch.randn(batch, 784, device=DEVICE)
    training("mlp", model, x, labels_of(batch, 10), torch.optim.SGD(model.parameters(), lr=0.01))


def cnn():
    batch, one, two, hidden = (2, 4, 8, 16) if FLAGS.small else (64, 32, 64, 1024)
    model = nn.Sequential(
        nn.Conv2d(1, one, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(one, two, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(49 * two, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    model = model.to(DEVICE, memory_format=torch.channels_last)
    x = torch.randn(batch, 1, 28, 28, device=DEVICE).to(memory_format=torch.channels_last)
    training("cnn", model, x, labels_of(batch, 10), torch.optim.SGD(model.parameters(), lr=0.01))


def gemm(kind):
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    batched = kind == "batched"
    n = 8 if FLAGS.small else 256 if batched else 8192
    shape = (64 if not FLAGS.small else 1, n, n) if batched else (n, n)
    dtype = torch.bfloat16 if kind in ("bf16", "batched") else torch.float32
    a = torch.randn(shape, device=DEVICE).to(dtype)
    b = torch.randn(shape, device=DEVICE).to(dtype)

    def step():
        product = None
        for _ in range(10):
            product = torch.matmul(a, b)
        return product

    with torch.no_grad():
        report(f"gemm_{kind}.torch_eager", measure(step))


def elementwise():
    x = torch.randn(1000 if FLAGS.small else 256 << 20, device=DEVICE)

    def chain(x):
        return torch.relu((x * 1.5 + 0.25) * x - 0.125)

    with torch.no_grad():
        report("elementwise.torch_eager", measure(lambda: chain(x)))
        if CUDA:
            try:
                compiled = torch.compile(chain)
                report("elementwise.torch_compile", measure(lambda: compiled(x), warm=10))
            except Exception as error:  # whatever the compiler's back ends raise
                print(f"torch_peer: elementwise compiled: {error}", file=sys.stderr)


class Block(nn.Module):
    """A bottleneck with its stride in the 3x3, as in ResNet v1.5."""

    def __init__(self, channels, inner, stride):
        super().__init__()
        self.convs = nn.ModuleList([
            nn.Conv2d(channels, inner, 1, bias=False),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False),
            nn.Conv2d(inner, 4 * inner, 1, bias=False)])
        self.norms = nn.ModuleList(
            [nn.BatchNorm2d(inner), nn.BatchNorm2d(inner), nn.BatchNorm2d(4 * inner)])
        self.shortcut = nn.Identity()
        if stride != 1 or channels != 4 * inner:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, 4 * inner, 1, stride, bias=False),
                                          nn.BatchNorm2d(4 * inner))

    def forward(self, x):
        y = F.relu(self.norms[0](self.convs[0](x)), inplace=True)
        y = F.relu(self.norms[1](self.convs[1](y)), inplace=True)
        return F.relu(self.norms[2](self.convs[2](y)) + self.shortcut(x), inplace=True)


def resnet(depths, width, classes):
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width),
              nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for stage, depth in enumerate(depths):
        inner = width << stage
        for block in range(depth):
            layers.append(Block(channels, inner, 2 if stage > 0 and block == 0 else 1))
            channels = 4 * inner
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*layers)


def resnet50():
    small = FLAGS.small
    batch, side, classes = (2, 32, 10) if small else (256, 224, 1000)
    model = resnet([1, 1] if small else [3, 4, 6, 3], 4 if small else 64, classes)
    model = model.to(DEVICE, memory_format=torch.channels_last)
    x = torch.randn(batch, 3, side, side, device=DEVICE).to(memory_format=torch.channels_last)
    labels = labels_of(batch, classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step_of(forward):
        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
                loss = F.cross_entropy(forward(x), labels)
            loss.backward()
            optimizer.step()
        return step

    if CUDA:
        torch.backends.cudnn.benchmark = True
        torch.cuda.reset_peak_memory_stats()
    report("resnet50.torch_eager", measure(step_of(model)))
    if CUDA:
        report("resnet50.torch_mib", torch.cuda.max_memory_reserved() / 2**20)
        report("resnet50.torch_allocated_mib", torch.cuda.max_memory_allocated() / 2**20)
        try:
            compiled = torch.compile(model, mode="max-autotune-no-cudagraphs")
            report("resnet50.torch_compile", measure(step_of(compiled), warm=10))
        except Exception as error:  # whatever the compiler's back ends raise
            print(f"torch_peer: resnet50 compiled: {error}", file=sys.stderr)


def main():
    for name in FLAGS.only or NAMES:
        if name.startswith("gemm_"):
            gemm(name[len("gemm_"):])
        else:
            globals()[name]()
        if CUDA:
            torch.cuda.empty_cache()


main()
