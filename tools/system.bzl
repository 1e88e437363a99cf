# SPDX-License-Identifier: Apache-2.0
"""system_library: a library installed on the machine, as a cc_* dependency."""

def _impl(ctx):
    compilation = cc_common.create_compilation_context(
        system_includes = depset(ctx.attr.include_dirs),
        defines = depset(ctx.attr.defines),
    )
    linker_input = cc_common.create_linker_input(
        owner = ctx.label,
        user_link_flags = depset(ctx.attr.linkopts),
    )
    linking = cc_common.create_linking_context(linker_inputs = depset([linker_input]))
    own = CcInfo(compilation_context = compilation, linking_context = linking)
    return [
        DefaultInfo(),
        cc_common.merge_cc_infos(
            direct_cc_infos = [own],
            cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
        ),
    ]

system_library = rule(
    implementation = _impl,
    attrs = {
        "include_dirs": attr.string_list(doc = "absolute, under /usr/include"),
        "defines": attr.string_list(),
        "linkopts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
    },
    provides = [CcInfo],
)
