# SPDX-License-Identifier: Apache-2.0
"""precompiled_header: system headers, parsed once for all sources of a kind."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")

# The compiler takes the parsed form for sources that it compiles with the same flags, and reads the
# header itself for others.
def _impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.run_shell(
        inputs = [ctx.file.src],
        outputs = [header],
        command = "cp \"$1\" \"$2\"",
        arguments = [ctx.file.src.path, header.path],
        mnemonic = "CopyHeader",
    )
    parsed = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ) + ["-iquote", ".", "-x", "c++-header", header.path, "-o", parsed.path],
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset([header] + ctx.files.hdrs, transitive = [toolchain.all_files]),
        outputs = [parsed],
        mnemonic = "PrecompileHeader",
        progress_message = "Precompiling %s" % header.short_path,
    )
    files = depset([header, parsed] + ctx.files.hdrs)
    return [
        DefaultInfo(files = files),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = files)),
    ]

precompiled_header = rule(
    implementation = _impl,
    attrs = {
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "hdrs": attr.label_list(allow_files = [".h"], doc = "what it includes of this folder"),
        "copts": attr.string_list(doc = "those of the sources that decide whether the form fits"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    provides = [CcInfo],
)
