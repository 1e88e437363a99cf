"""link_only: libraries as they are linked, without their headers."""

def _link_only_impl(ctx):
    linked = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    return [CcInfo(linking_context = linked.linking_context)]

link_only = rule(
    implementation = _link_only_impl,
    doc = "For those who declare the one function that they call: nothing of what depends on them " +
          "is compiled anew when the headers of `deps` change.",
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
    provides = [CcInfo],
)
