// SPDX-License-Identifier: Apache-2.0
// vocabpipe select export: writes scores, a graph or a subset as a table for other programs.
#include <cstdio>
#include <memory>
#include <string>

#include "src/select/convert/export_table.hpp"
#include "src/support/output_check.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/long_work.hpp"

namespace vocabpipe::tool {

namespace {

struct SelectExportArguments {
    std::string input, output, column;
};

void select_export(const SelectExportArguments& o) {
    OutputCheck check({o.input});
    check.add("--output", o.output, table_output());
    const ExportReport report = [&] {
        const LongWork work("writing " + o.output);
        return export_table(o.input, o.output, o.column);
    }();
    std::printf("%s: %s of a file of vocabpipe select (%s)\n", o.output.c_str(),
                counted(report.rows, "row").c_str(), report.what.c_str());
}

}  // namespace

Command select_export_command() {
    const auto o = std::make_shared<SelectExportArguments>();
    return {.name = "export",
            .description =
                "Write scores, a graph or a subset as a table for other programs\n"
                "  vocabpipe select export subset.safetensors --output subset.txt",
            .flags = {{.flags = {{.names = "FILE",
                                  .value = &o->input,
                                  .help = "File of scores, graph or subset",
                                  .unit = "FILE"},
                                 {.names = "--output",
                                  .value = &o->output,
                                  .help = "Name that ends in .parquet, .npy or .txt",
                                  .unit = "FILE",
                                  .required = true},
                                 {.names = "--column",
                                  .value = &o->column,
                                  .help = "The one to write of scores; .npy and .txt hold one",
                                  .choices = {"utility", "embedding", "loss"},
                                  .unset = "all of them"}}}},
            .run = [o](const GivenFlags&) { select_export(*o); }};
}

}  // namespace vocabpipe::tool
