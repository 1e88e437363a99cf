# SPDX-License-Identifier: Apache-2.0
"""Targets that only a build with --config=cuda compiles.

cuda_library    .cu files through nvcc, and .cc files that include CUDA's headers
cuda_cc_test    tests of such code; without --config=cuda they are skipped
cuda_cc_binary  programs of such code, likewise

Everything here loads without a toolkit. Without --config=cuda a cuda_library holds its
`fallback` sources (none: just its headers).
"""

load("@local_cuda//:cuda.bzl", "CUDA_HOME", "HAS_CUDA")
load("//tools:millrace.bzl", "mr_cc_binary", "mr_cc_library", "mr_cc_test")

ENABLED = "//tools/cuda:enabled"

# Only in a build with CUDA.
CUDA_ONLY = select({
    ENABLED: [],
    "//conditions:default": ["@platforms//:incompatible"],
})

_ONE_ARCHITECTURE = ["arch=compute_90a,code=sm_90a"]

# Real code for what there is, and PTX for what comes later. (That of compute_90a would be
# for Hopper alone.)
_ALL_ARCHITECTURES = [
    "arch=compute_75,code=sm_75",
    "arch=compute_80,code=sm_80",
    "arch=compute_90a,code=sm_90a",
    "arch=compute_90,code=compute_90",
]

def _cuda_objects_impl(ctx):
    if not HAS_CUDA:
        fail("--config=cuda needs the CUDA toolkit: there is no %s/bin/nvcc (set CUDA_HOME)" %
             CUDA_HOME)
    headers = []
    quotes, systems, defines = [], [], []
    for dep in ctx.attr.deps:
        cc = dep[CcInfo].compilation_context
        headers.append(cc.headers)
        quotes.append(cc.quote_includes)
        systems.append(cc.system_includes)
        systems.append(cc.includes)
        defines.append(cc.defines)
    args = ctx.actions.args()
    args.add_all(["-std=c++20", "-O3", "-Xcompiler", "-fPIC", "--expt-relaxed-constexpr"])
    args.add_all(["--extended-lambda", "-lineinfo", "-t", "2"])
    args.add_all(ctx.attr.archs, before_each = "-gencode")
    args.add_all(["-I", ".", "-I", "include", "-I", ctx.genfiles_dir.path + "/include"])
    args.add_all(depset(transitive = quotes), before_each = "-I")
    args.add_all(depset(transitive = systems), before_each = "-isystem")
    args.add_all(depset(transitive = defines), format_each = "-D%s")
    args.add_all(ctx.attr.copts)
    objects = []
    for src in ctx.files.srcs:
        if src.extension != "cu":
            continue
        obj = ctx.actions.declare_file("_objs/%s/%s.o" % (ctx.label.name, src.basename[:-3]))
        ctx.actions.run(
            executable = CUDA_HOME + "/bin/nvcc",
            arguments = ["-c", src.path, "-o", obj.path, args],
            inputs = depset(ctx.files.srcs + ctx.files.hdrs, transitive = headers),
            outputs = [obj],
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s with nvcc" % src.short_path,
            use_default_shell_env = True,
        )
        objects.append(obj)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu", ".cuh", ".h"]),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "archs": attr.string_list(),
        "copts": attr.string_list(),
    },
)

def cuda_library(
        name,
        srcs = [],
        hdrs = [],
        deps = [],
        cuda_deps = [],
        fallback = [],
        copts = [],
        cuda_copts = [],
        visibility = ["//visibility:public"],
        **kwargs):
    """A library of device code, of host code that includes CUDA's headers, or of both.

    Args:
      srcs: .cu, .cuh, .cc and .h files, compiled with --config=cuda only.
      deps: of every build, with a toolkit or without one.
      cuda_deps: of a build with CUDA only.
      fallback: .cc files that define the same functions for a build without CUDA.
      copts: for .cc files.
      cuda_copts: for nvcc.
    """
    cu = [s for s in srcs if s.endswith(".cu")]
    cuh = [s for s in srcs if s.endswith(".cuh")]
    host = [s for s in srcs if not s.endswith(".cu") and not s.endswith(".cuh")]
    objects = []
    if cu:
        _cuda_objects(
            name = name + "_objects",
            srcs = cu + cuh + [s for s in host if s.endswith(".h")],
            hdrs = hdrs,
            deps = deps + cuda_deps + ["@local_cuda//:headers"],
            archs = select({
                "//tools/cuda:all_architectures": _ALL_ARCHITECTURES,
                "//conditions:default": _ONE_ARCHITECTURE,
            }),
            copts = cuda_copts,
            tags = ["manual"],
            target_compatible_with = CUDA_ONLY,
        )
        objects = [name + "_objects"]
    mr_cc_library(
        name = name,
        srcs = select({
            ENABLED: host + objects,
            "//conditions:default": fallback,
        }),
        hdrs = hdrs + cuh,
        copts = copts,
        deps = deps + select({
            ENABLED: cuda_deps + ["@local_cuda//:headers", "@local_cuda//:cudart_static"],
            "//conditions:default": [],
        }),
        visibility = visibility,
        **kwargs
    )

def cuda_cc_test(name, **kwargs):
    mr_cc_test(name = name, target_compatible_with = CUDA_ONLY, **kwargs)

def cuda_cc_binary(name, **kwargs):
    mr_cc_binary(name = name, target_compatible_with = CUDA_ONLY, **kwargs)
