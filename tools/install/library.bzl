# SPDX-License-Identifier: Apache-2.0
"""The engine in one file, for programs that Bazel does not build: an archive, and a shared library."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

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

# Every archive whole, since nothing asks for its members yet; then only what the exported symbols
# reach is kept. Its own names mean its own definitions, whatever else a process has loaded. It has
# threads that outlive any dlclose.
_SHARED_FLAGS = [
    "-shared",
    "-Wl,--gc-sections",
    "-Wl,-Bsymbolic",
    "-Wl,-z,defs",
    "-Wl,-z,nodelete",
    "-Wl,-z,relro",
    "-Wl,--strip-all",
]

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

def _shared_library_impl(ctx):
    archives, flags = _parts(ctx.attr.dep)
    compiler = find_cpp_toolchain(ctx).compiler_executable
    script = ctx.actions.declare_file(ctx.label.name + ".map")
    _exports(ctx, archives, "script", script)
    library = ctx.actions.declare_file("libmillrace.so")
    arguments = ctx.actions.args()
    arguments.use_param_file("@%s", use_always = True)
    arguments.set_param_file_format("shell")
    arguments.add("-o", library)
    arguments.add_all(_SHARED_FLAGS)
    arguments.add(script, format = "-Wl,--version-script=%s")
    arguments.add("-Wl,--whole-archive")
    arguments.add_all(archives)
    arguments.add("-Wl,--no-whole-archive")
    arguments.add_all(flags)
    arguments.add("-lstdc++")
    arguments.add("-lm")

    # The node of the version script names the versions that go together: MILLRACE_0.2.
    ctx.actions.run_shell(
        inputs = archives + [script],
        outputs = [library],
        arguments = [arguments],
        command = "%s \"$@\" -Wl,-soname,libmillrace.so.$(sed -n 's/^MILLRACE_\\(.*\\) {$/\\1/p' %s)" % (
            compiler,
            script.path,
        ),
        mnemonic = "LinkSharedLibrary",
        progress_message = "Linking %s" % library.short_path,
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([library]), runfiles = ctx.runfiles(files = [library]))]

shared_library = rule(
    implementation = _shared_library_impl,
    doc = "libmillrace.so, which exports what `headers` declare and nothing else.",
    attrs = dict(
        _EXPORT_ATTRS,
        _cc_toolchain = attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    ),
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
