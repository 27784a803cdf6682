// SPDX-License-Identifier: Apache-2.0
// vocabpipe select import: makes a graph file from other programs' edges.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "src/select/convert/import_edges.hpp"
#include "src/support/output_check.hpp"
#include "src/support/process_memory.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/phase_progress.hpp"

namespace vocabpipe::tool {

namespace {

struct SelectImportArguments {
    std::string edges, output;
    int64_t samples = 0;  // 0: as many as the edges name
    uint64_t memory = 0;  // 0: half of what is available
};

void select_import(const SelectImportArguments& o) {
    OutputCheck check({o.edges});
    check.add("--output", o.output, graph_output());
    const auto input = open_edges(o.edges);
    PhaseProgress progress(true);
    const auto available = static_cast<uint64_t>(std::max<int64_t>(available_memory(), 0));
    const ImportReport report =
        import_edges(*input, o.output,
                     {.samples = o.samples,
                      .memory = o.memory > 0 ? o.memory : available / 2,
                      .progress = [&](const char* phase, int64_t done, int64_t total) {
                          progress.show(phase, done, total);
                      }});
    progress.clear();
    std::printf("%s: %s, %s; %s of %s\n", o.output.c_str(),
                counted(report.samples, "sample").c_str(), counted(report.edges, "edge").c_str(),
                counted(report.passes, "pass", "passes").c_str(), o.edges.c_str());
}

}  // namespace

Command select_import_command() {
    const auto o = std::make_shared<SelectImportArguments>();
    return {
        .name = "import",
        .description =
            "Make a graph of the edges of others\n"
            "  vocabpipe select import --edges edges.parquet --output graph.safetensors",
        .flags = {{.flags = {{.names = "--edges",
                              .value = &o->edges,
                              .help =
                                  ".parquet with columns src, dst and weight, or .npy with three "
                                  "columns. An edge is given once or in both directions; "
                                  "weights are at least 0",
                              .unit = "FILE",
                              .required = true},
                             {.names = "--samples",
                              .value = &o->samples,
                              .help = "Number of samples",
                              .range = between(1, 0x1p32),
                              .unset = "the largest number of an edge, and one more",
                              .absent = 0},
                             {.names = "--output",
                              .value = &o->output,
                              .help = "File of the graph",
                              .unit = "FILE",
                              .required = true},
                             {.names = "--memory",
                              .value = FlagBytes{&o->memory},
                              .help = "Memory to work with, such as 2GiB: at least 8 bytes per "
                                      "sample. With less the file is read more often",
                              .unset = "half of what is available"}}}},
        .run = [o](const GivenFlags&) { select_import(*o); }};
}

}  // namespace vocabpipe::tool
