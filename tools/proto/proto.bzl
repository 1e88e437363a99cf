"""C++ from .proto files with the system's protoc: one action per file, run once."""

def cc_protos(name, srcs, deps = [], visibility = None):
    """A cc_library of the generated messages; headers are included by workspace path."""
    hdrs, ccs = [], []
    for src in srcs:
        base = src[:-len(".proto")]
        native.genrule(
            name = name + "_" + base + "_gen",
            srcs = [src] + [d + "_srcs" for d in deps],
            outs = [base + ".pb.h", base + ".pb.cc"],
            cmd = "/usr/bin/protoc -I. --cpp_out=$(GENDIR) $(location %s)" % src,
        )
        hdrs.append(base + ".pb.h")
        ccs.append(base + ".pb.cc")
    native.filegroup(
        name = name + "_srcs",
        srcs = srcs + [d + "_srcs" for d in deps],
        visibility = visibility,
    )
    native.cc_library(
        name = name,
        srcs = ccs,
        hdrs = hdrs,
        copts = ["-Wno-unused-parameter"],
        visibility = visibility,
        deps = deps + ["//third_party:protobuf"],
    )
