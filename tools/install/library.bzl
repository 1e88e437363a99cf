"""One archive of everything that a library is linked from, for programs that Bazel does not build."""

def _installed_library_impl(ctx):
    inputs = ctx.attr.dep[CcInfo].linking_context.linker_inputs.to_list()
    archives = []
    flags = []
    for part in inputs:
        flags += part.user_link_flags
        for library in part.libraries:
            archive = library.static_library or library.pic_static_library
            if archive:
                archives.append(archive)
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
