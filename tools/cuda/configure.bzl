# SPDX-License-Identifier: Apache-2.0
"""@local_cuda: links to the CUDA toolkit's folders, or stubs when there is none."""

_BUILD = """
package(default_visibility = ["//visibility:public"])

exports_files(["cuda.bzl"])

cc_library(
    name = "headers",
    hdrs = glob(["include/*.h", "include/crt/**"], allow_empty = True),
    includes = ["include"],
)

# The toolkit's static run time: no libcudart.so at run time. It finds the driver
# by dlopen, so a binary linked with it starts on a machine without one.
cc_library(
    name = "cudart_static",
    srcs = glob(["lib/libcudart_static.a"], allow_empty = True),
    linkopts = ["-ldl", "-lrt", "-pthread"],
)
"""

def _impl(ctx):
    root = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = ctx.path(root + "/bin/nvcc")
    found = nvcc.exists
    if found:
        ctx.symlink(ctx.path(root + "/include"), "include")
        lib = ctx.path(root + "/lib64")
        ctx.symlink(lib if lib.exists else ctx.path(root + "/lib"), "lib")
    ctx.file("BUILD", _BUILD)
    ctx.file("cuda.bzl", "CUDA_HOME = %r\nHAS_CUDA = %r\n" % (root, found))

cuda_configure = repository_rule(
    implementation = _impl,
    environ = ["CUDA_HOME"],
    local = True,
)
