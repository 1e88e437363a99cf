"""The engine for programs that Bazel does not build, or that load libraries."""

def _parts(dep):
    """The archives that `dep` is linked from, and the flags for the system's libraries."""
    archives = []
    flags = []
    for part in dep[CcInfo].linking_context.linker_inputs.to_list():
        flags += part.user_link_flags
        for library in part.libraries:
            archive = library.static_library or library.pic_static_library
            if archive:
                archives.append(archive)
    return archives, flags

def _installed_library_impl(ctx):
    archives, flags = _parts(ctx.attr.dep)
    archive = ctx.actions.declare_file("libmillrace.a")
    commands = ctx.actions.declare_file(ctx.label.name + ".mri")
    ctx.actions.write(
        commands,
        "\n".join(["CREATE " + archive.path] + ["ADDLIB " + a.path for a in archives] + ["SAVE", "END", ""]),
    )
    ctx.actions.run_shell(
        inputs = archives + [commands],
        outputs = [archive],
        command = "ar -M <%s && strip --strip-debug %s" % (commands.path, archive.path),
        mnemonic = "MergeArchives",
        progress_message = "Merging %d archives into %s" % (len(archives), archive.short_path),
    )
    link_flags = ctx.actions.declare_file("libmillrace.flags")
    ctx.actions.write(link_flags, " ".join(flags) + "\n")
    made = [archive, link_flags]
    return [DefaultInfo(files = depset(made), runfiles = ctx.runfiles(files = made))]

installed_library = rule(
    implementation = _installed_library_impl,
    doc = "libmillrace.a, with what `dep` stands on, and libmillrace.flags: the system's libraries it needs.",
    attrs = {"dep": attr.label(mandatory = True, providers = [CcInfo])},
)

def _exports(ctx, archives, mode, output):
    """Writes what tools/install/export_map.cc makes of the symbols of these archives."""
    symbols = ctx.actions.declare_file(ctx.label.name + ".symbols")
    ctx.actions.run_shell(
        inputs = archives,
        outputs = [symbols],
        command = "nm --defined-only --extern-only -P %s | grep -v ':$' >%s" % (
            " ".join([a.path for a in archives]),
            symbols.path,
        ),
        mnemonic = "ListSymbols",
    )
    ctx.actions.run_shell(
        inputs = ctx.files.headers + [symbols],
        tools = [ctx.executable.export_map],
        outputs = [output],
        command = "%s %s %s %s >%s" % (
            ctx.executable.export_map.path,
            mode,
            symbols.path,
            " ".join([h.path for h in ctx.files.headers]),
            output.path,
        ),
        mnemonic = "ExportMap",
    )

_EXPORT_ATTRS = {
    "dep": attr.label(mandatory = True, providers = [CcInfo]),
    "headers": attr.label_list(allow_files = [".h"], mandatory = True),
    # Built as the rest is: a tool would have all it depends on compiled a second time.
    "export_map": attr.label(executable = True, mandatory = True, cfg = "target"),
}

def _exported_api_impl(ctx):
    flags = ctx.actions.declare_file(ctx.label.name + ".params")
    _exports(ctx, _parts(ctx.attr.dep)[0], "link", flags)
    exports = cc_common.create_linker_input(
        owner = ctx.label,
        user_link_flags = depset(["@" + flags.path]),
        additional_inputs = depset([flags]),
    )
    linking = cc_common.create_linking_context(
        linker_inputs = depset([exports], transitive = [ctx.attr.dep[CcInfo].linking_context.linker_inputs]),
    )
    return [DefaultInfo(files = depset([flags])), CcInfo(linking_context = linking)]

exported_api = rule(
    implementation = _exported_api_impl,
    doc = "For programs that load libraries: all of `dep` that `headers` declare, linked in and exported.",
    attrs = _EXPORT_ATTRS,
    provides = [CcInfo],
)
