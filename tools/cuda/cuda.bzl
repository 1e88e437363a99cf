"""cuda_library: .cu files through nvcc into objects that any cc_* target links."""

load("@local_cuda//:cuda.bzl", "CUDA_HOME", "HAS_CUDA")

# Real code for data-centre parts, PTX of the newest for anything later.
CUDA_ARCHS = [
    "arch=compute_80,code=sm_80",
    "arch=compute_90,code=sm_90",
    "arch=compute_90,code=compute_90",
]

def _cuda_objects_impl(ctx):
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
    args.add_all(["-t", "2"])
    args.add_all(ctx.attr.archs, before_each = "-gencode")
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
            arguments = ["-c", src.path, "-o", obj.path, "-I", ".", "-I", "include", args],
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
        "archs": attr.string_list(default = CUDA_ARCHS),
        "copts": attr.string_list(),
    },
)

def cuda_library(name, srcs, hdrs = [], deps = [], fallback = [], copts = [], visibility = None):
    """Compiles `srcs` with nvcc; where there is no toolkit, `fallback` C++ sources instead."""
    if HAS_CUDA:
        _cuda_objects(
            name = name + "_objects",
            srcs = srcs,
            hdrs = hdrs,
            deps = deps,
            copts = copts,
        )
        native.cc_library(
            name = name,
            srcs = [name + "_objects"],
            hdrs = hdrs,
            deps = deps + ["@local_cuda//:cudart_static"],
            defines = ["MILLRACE_CUDA=1"],
            alwayslink = True,
            visibility = visibility,
        )
    else:
        native.cc_library(
            name = name,
            srcs = fallback,
            hdrs = hdrs,
            deps = deps,
            visibility = visibility,
        )
