// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: every row that GraphRows gives is one that may be in a graph, or there is an
// InputFileError of one line.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "src/select/files/graph_file.hpp"
#include "src/select/graph_check.hpp"
#include "vocabpipe/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    const int file = ::memfd_create("graph", 0);
    if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
    try {
        const GraphFile graph("/proc/self/fd/" + std::to_string(file));
        GraphRows rows(graph, 256);
        GraphCheck check;
        int64_t entries = 0;
        // A header may promise many empty rows only if they are in the file.
        for (int64_t v = 0; v < graph.nodes(); ++v) {
            const GraphRow row = rows.at(v);
            if (row.node != v || row.begin != entries) std::abort();
            entries += rows.degree(v);
            if (row.neighbours.size() != row.similarities.size()) std::abort();
            for (size_t i = 0; i < row.degree(); ++i) {
                const bool ascends = i == 0 || row.neighbours[i] > row.neighbours[i - 1];
                if (!ascends || row.neighbours[i] == v || row.neighbours[i] >= graph.nodes() ||
                    row.similarities[i] < 0) {
                    std::abort();
                }
            }
            check.add(row);
        }
        if (entries != graph.entries()) std::abort();
    } catch (const InputFileError& error) {
        if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    }
    ::close(file);
    return 0;
}
