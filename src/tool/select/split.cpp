// SPDX-License-Identifier: Apache-2.0
// vocabpipe select split: cuts a graph into the parts of hosts that share no file system.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "src/select/graph_parts.hpp"
#include "src/support/output_check.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/phase_progress.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

struct SelectSplitArguments {
    std::string graph, output;
    int64_t parts = 0;
};

void select_split(const SelectSplitArguments& o) {
    const GraphFile graph(o.graph);
    const auto parts = static_cast<int>(o.parts);
    if (o.parts > graph.nodes()) {
        throw UsageError("--parts " + std::to_string(o.parts) + ": there are only " +
                         std::to_string(graph.nodes()) + " samples; use fewer");
    }
    OutputCheck check({o.graph});
    for (int part = 0; part < parts; ++part) {
        check.add("--output", graph_part_name(o.output, part, parts), graph_output());
    }
    PhaseProgress progress(true);
    split_graph(graph, parts, o.output,
                [&](int64_t done) { progress.show("rows", done, graph.nodes()); });
    progress.clear();
    const Ownership rows(graph.nodes(), parts);
    for (int part = 0; part < parts; ++part) {
        std::printf("%s: rows %lld to %lld\n", graph_part_name(o.output, part, parts).c_str(),
                    static_cast<long long>(rows.begin(part)),
                    static_cast<long long>(rows.end(part) - 1));
    }
}

}  // namespace

Command select_split_command() {
    const auto o = std::make_shared<SelectSplitArguments>();
    return {.name = "split",
            .description =
                "Cut a graph into parts, for hosts that share no file system\n"
                "  vocabpipe select split --graph graph.safetensors --parts 4 --output "
                "part.safetensors",
            .flags = {{.flags = {{.names = "--graph",
                                  .value = &o->graph,
                                  .help = "Similar samples, from vocabpipe select knn",
                                  .unit = "FILE",
                                  .required = true},
                                 {.names = "--parts",
                                  .value = &o->parts,
                                  .help = "Number of parts: one for each host",
                                  .range = between(1, 99'999),
                                  .required = true},
                                 {.names = "--output",
                                  .value = &o->output,
                                  .help = "Name of the parts, to which -00001-of-00004 is added",
                                  .unit = "FILE",
                                  .required = true}}}},
            .run = [o](const GivenFlags&) { select_split(*o); }};
}

}  // namespace vocabpipe::tool
