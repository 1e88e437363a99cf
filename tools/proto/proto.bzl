# SPDX-License-Identifier: Apache-2.0
"""C++ from .proto files with the system's protoc: one run of it for a target."""

load("//tools:millrace.bzl", "PIC_COPTS", "precompiled")

def cc_protos(name, srcs, deps = [], visibility = None):
    """A cc_library of the generated messages; headers are included by workspace path."""
    hdrs, ccs = [], []
    flags, headers = precompiled("for_libraries")
    for src in srcs:
        base = src[:-len(".proto")]
        hdrs.append(base + ".pb.h")
        ccs.append(base + ".pb.cc")
    native.filegroup(
        name = name + "_srcs",
        srcs = srcs + [d + "_srcs" for d in deps],
        visibility = visibility,
    )
    native.genrule(
        name = name + "_gen",
        srcs = srcs + [d + "_srcs" for d in deps],
        outs = hdrs + ccs,
        cmd = "/usr/bin/protoc -I. --cpp_out=$(GENDIR) " +
              " ".join(["$(location %s)" % src for src in srcs]),
    )
    native.cc_library(
        name = name,
        srcs = ccs,
        hdrs = hdrs,
        copts = ["-Wno-unused-parameter"] + PIC_COPTS + flags,
        visibility = visibility,
        deps = deps + ["//third_party:protobuf"] + headers,
    )
