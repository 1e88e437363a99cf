# SPDX-License-Identifier: Apache-2.0
"""Tests that are written once for every kind of device (kinds.h)."""

load("//tools:millrace.bzl", "mr_cc_library", "mr_cc_test")

def device_kinds_test(name, deps, data = [], simulated_gpu_tags = ["tsan"], tags = ["tsan"]):
    """Three tests of NAME.cc, which is compiled once.

    NAME runs on the CPU and the simulated accelerator; with "_simulated_gpu_test" in place of
    "_test", on the CUDA device without a GPU; with "_gpu_test", on a GPU: tests/gpu/run_all runs
    that one, and it fails where there is none.

    Args:
      name: ends in "_test".
      deps: what NAME.cc needs besides kinds.h.
      data: what the tests read.
      simulated_gpu_tags: of the second.
      tags: of the first.
    """
    stem = name[:-len("_test")]
    cases = stem + "_cases"
    mr_cc_library(
        name = cases,
        testonly = True,
        srcs = [name + ".cc"],
        visibility = ["//visibility:private"],
        deps = deps + [":kinds"],
        alwayslink = True,
    )
    mr_cc_test(
        name = name,
        srcs = ["kinds_everywhere.cc"],
        data = data,
        tags = tags,
        deps = [":" + cases, ":kinds"],
    )
    mr_cc_test(
        name = stem + "_simulated_gpu_test",
        srcs = ["kinds_simulated_gpu.cc"],
        data = data,
        tags = simulated_gpu_tags,
        deps = [":" + cases, ":kinds", ":program", ":simulated_gpus"],
    )
    mr_cc_test(
        name = stem + "_gpu_test",
        srcs = ["kinds_gpu.cc"],
        data = data,
        tags = ["manual"],
        visibility = ["//tools:__pkg__"],
        deps = [":" + cases, ":kinds"],
    )
