# SPDX-License-Identifier: Apache-2.0
"""The cc_* rules of this project: ours, with our warnings as errors."""

# Generated messages and system headers are not compiled with these.
MR_COPTS = [
    "-Wall",
    "-Wextra",
] + select({
    # --config=any_compiler: another compiler than the supported one may warn of more.
    "//tools:any_compiler": [],
    "//conditions:default": ["-Werror"],
}) + [
    "-Wno-unused-parameter",
    # g++ 12 raises these falsely on "text" + std::to_string(i) and on copies of short strings: in
    # branches that only long ones take.
    "-Wno-restrict",
    "-Wno-array-bounds",
    "-Wno-stringop-overread",
    "-Wno-stringop-overflow",
    # Nor does it see that a moved absl::InlinedVector copies unused room on purpose.
    "-Wno-maybe-uninitialized",
    # For "millrace/x.h". Not the library's `includes`, which would make the public
    # headers system headers, and their warnings vanish.
    "-Iinclude",
    "-I$(GENDIR)/include",
]

# Objects of libraries go into programs and into libmillrace.so (tools/install) alike, compiled once
# for both. In programs the linker takes the indirections out again. Sanitizers see programs only.
PIC_COPTS = select({
    "//tools/install:sanitized": [],
    "//conditions:default": [
        "-fPIC",
        "-fno-semantic-interposition",
        # Found at a fixed place when the library is loaded, not by a call each time.
        "-ftls-model=initial-exec",
    ],
})

# For loops over numbers. errno and traps would forbid vectors; a product joined with a sum only
# where the processor can would make results depend on the processor.
LOOP_COPTS = [
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
]

# Flags and dependencies of sources that take the parsed form of system headers.
def precompiled(name, wanted = True):
    if not wanted:
        return [], []
    return (
        select({
            "//tools/precompiled:off": [],
            "//conditions:default": ["-include", "tools/precompiled/%s.h" % name, "-Winvalid-pch"],
        }),
        select({
            "//tools/precompiled:off": [],
            "//conditions:default": ["//tools/precompiled:" + name],
        }),
    )

_PUBLIC = ["//visibility:public"]

def mr_cc_library(
        name,
        copts = [],
        deps = [],
        visibility = _PUBLIC,
        testonly = False,
        loops = False,
        use_precompiled = True,
        **kwargs):
    """A library; `loops` if it computes (LOOP_COPTS)."""
    flags, headers = precompiled("for_loops" if loops else "for_libraries", use_precompiled)
    native.cc_library(
        name = name,
        copts = MR_COPTS + PIC_COPTS + (LOOP_COPTS if loops else []) + flags + copts,
        deps = deps + headers,
        testonly = testonly,
        visibility = visibility,
        **kwargs
    )

def mr_cc_binary(name, copts = [], visibility = _PUBLIC, **kwargs):
    native.cc_binary(
        name = name,
        copts = MR_COPTS + copts,
        visibility = visibility,
        **kwargs
    )

def mr_cc_test(
        name,
        copts = [],
        deps = [],
        data = [],
        size = "small",
        use_precompiled = True,
        **kwargs):
    """A GoogleTest program. Tests of concurrent code carry tags = ["tsan"].

    use_precompiled = False where the test is that something compiles by itself.
    """
    flags, headers = precompiled("for_tests", use_precompiled)
    native.cc_test(
        name = name,
        size = size,
        copts = MR_COPTS + flags + copts,
        data = data + ["//third_party:sanitizers/tsan.supp"],
        linkstatic = True,
        deps = deps + ["//third_party:gtest_main"] + headers,
        **kwargs
    )

def mr_cc_fuzz(name, copts = [], linkopts = [], tags = [], deps = [], data = [], changes = 1500, **kwargs):
    """A libFuzzer program (LLVMFuzzerTestOneInput); built by --config=fuzz only.

    And NAME_corpus_test, a short run of the same over the seeds that the source defines
    (millrace::FuzzSeeds) and `changes` changes to each, which needs no libFuzzer.
    """
    native.cc_binary(
        name = name,
        testonly = True,
        copts = MR_COPTS + copts,
        linkopts = linkopts + ["-fsanitize=fuzzer"],
        tags = tags + ["fuzz", "manual"],
        deps = deps,
        data = data,
        **kwargs
    )
    native.cc_test(
        name = name + "_corpus_test",
        size = "small",
        args = [str(changes)],
        copts = MR_COPTS + copts,
        linkopts = linkopts,
        linkstatic = True,
        tags = tags,
        deps = deps + ["//tools/fuzz:corpus_main"],
        data = data,
        **kwargs
    )
