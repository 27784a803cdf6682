# SPDX-License-Identifier: Apache-2.0
# Writes a build.ninja that compiles every source and header by itself (check.sh). A header that a source
# includes before all others has been compiled by itself once that source has. So of a source's own headers
# one can be put first, and few headers need a compilation of their own.

function own_header(name, from,    i, folder, path) {
    folder = from
    sub(/[^\/]*$/, "", folder)
    split("|include/|tests/support/cuda_stand_in/include/|" folder, folders, "|")
    for (i = 1; i <= 4; ++i) {
        path = folders[i] name
        if (path in is_file) return path
    }
    return ""
}

# The flags of the source nearest by path.
function nearest_flags(file,    prefix, i) {
    for (prefix = file; prefix != ""; sub(/[^\/]*\/?$/, "", prefix))
        for (i = 1; i <= sources; ++i)
            if (index(source[i], prefix) == 1 && source[i] in flags) return flags[source[i]]
    return nearest_flags("src/")  # include/ has no sources
}

function edge(file, compile, first, precompiled) {
    printf "build %s.ok: alone %s/%s%s\n  compile = %s\n  first = %s\n", file, root, file,
        precompiled == "" ? "" : " | " precompiled, compile, first
}

/^C/ {
    command = substr($0, 2)
    next
}
/^F/ {
    file = substr($0, 2)
    if (index(file, root "/") != 1 || substr(file, length(root) + 2) in flags) next
    sub(/ -o .*/, "", command)
    # What does not change the syntax would make precompiled headers differ.
    gsub(/ -(O[0-3s]|g1?|DNDEBUG|fPIC|fPIE|fno-strict-aliasing|fopenmp)/, "", command)
    flags[substr(file, length(root) + 2)] = command " -fopenmp"
    next
}
/^S/ {
    file = substr($0, 2)
    is_file[file] = 1
    if (file ~ /\.(cpp|cu)$/) source[++sources] = file
    else header[++headers] = file
    next
}
/^I/ {
    split(substr($0, 2), words, " ")
    file = words[1]
    if (words[2] ~ /^g(test|mock)\/g(test|mock)\.h$/) {
        sub(/.*\//, "", words[2])
        sub(/\.h$/, ".hpp", words[2])
        if (precompiled[file] != "gmock.hpp") precompiled[file] = words[2]
        next
    }
    included = own_header(words[2], file)
    if (included == "") next
    if (!((file, 0) in includes)) includes[file, 0] = included
    includes[file, ++count[file]] = included
}

END {
    print "rule alone\n  command = $compile -fsyntax-only -MD -MF $out.d -MT $out $first $in && : >$out\n  description = $in\n  deps = gcc\n  depfile = $out.d"
    print "rule precompile\n  command = $compile -x c++-header $in -o $out"

    for (i = 1; i <= sources; ++i) {
        file = source[i]
        if (!(file in flags)) {
            near = nearest_flags(file)  # before flags[file] exists
            flags[file] = near
        }
        # Behind GoogleTest a header would have what GoogleTest includes.
        if (file in precompiled) {
            if (compile == "" && flags[file] ~ /GTEST/) compile = flags[file]
        } else if ((file, 0) in includes) {
            first[file] = includes[file, 0]
            ++first_of[first[file]]
        }
    }
    # A header that is first nowhere goes where the first one is first elsewhere, too.
    for (i = 1; i <= sources; ++i)
        for (j = 1; j <= count[source[i]]; ++j) {
            included = includes[source[i], j]
            by[included] = by[included] == "" ? source[i] : by[included]
            if (!(source[i] in first) || first_of[included] || first_of[first[source[i]]] < 2) continue
            --first_of[first[source[i]]]
            first[source[i]] = included
            first_of[included] = 1
            moved[source[i]] = 1
        }

    gsub(/ -(D|I|isystem )[^ ]*/, "", compile)
    for (i = 1; i <= 2 && compile != ""; ++i) {  # without tests there are none
        name = i == 1 ? "gtest.hpp" : "gmock.hpp"
        printf "build %s.gch: precompile %s\n  compile = %s -DGTEST_HAS_PTHREAD=1\n", name, name, compile
    }
    for (i = 1; i <= sources; ++i) {
        file = source[i]
        if (file in precompiled) edge(file, flags[file], "-include " precompiled[file], precompiled[file] ".gch")
        else edge(file, flags[file], file in moved ? "-include " root "/" first[file] : "", "")
    }
    for (i = 1; i <= headers; ++i) {
        if (first_of[header[i]]) continue
        file = header[i]
        edge(file, (by[file] == "" ? nearest_flags(file) : flags[by[file]]) " -x c++ /dev/null", "-include", "")
        ++alone
    }
    printf "# %d sources, %d headers, %d of them in a compilation of their own\n", sources, headers, alone
}
