// SPDX-License-Identifier: Apache-2.0
// vocabpipe schedule convert: between CSV dialects and JSON.
#include <iostream>
#include <memory>

#include "src/support/output_check.hpp"
#include "src/tool/commands.hpp"
#include "src/tool/schedule_files.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

struct Options {
    std::string from, to;
    std::string dialect = "new";
    std::string output_dialect = "auto";
};

/// Whoever's it is: what can be read as a schedule can be replaced by one.
OutputKind schedule_output() {
    return {"a schedule", [](const std::string& path) {
                try {
                    (void)read_schedule(path, {.dialect = CsvDialect::automatic});
                    return true;
                } catch (const Error&) {
                    return false;
                }
            }};
}

void convert(const Options& options) {
    const CsvDialect to = csv_dialect_from(options.output_dialect);
    const ScheduleFormat format = schedule_format_of(options.to);
    const Schedule schedule =
        read_schedule_file(options.from, {.dialect = csv_dialect_from(options.dialect)});
    OutputCheck({options.from}).add("OUT", options.to, schedule_output());
    write_schedule(options.to, schedule, to);
    if (format == ScheduleFormat::csv && schedule.output.vocab_size() > 0 &&
        csv_dialect_of(schedule, to) != CsvDialect::vocabpipe) {
        std::cerr << "vocabpipe: note: " + options.to +
                         ": the passes of the whole vocabulary layers are left out, because "
                         "PyTorch's first and last stage contain them; --output-dialect vocabpipe "
                         "keeps them\n";
    }
}

}  // namespace

void add_schedule_convert(CLI::App& schedule) {
    CLI::App* command =
        schedule.add_subcommand("convert", "Convert a schedule file between CSV and JSON");
    auto options = std::make_shared<Options>();
    command->add_option("IN", options->from, "The .csv or .json file to read")->required();
    command->add_option("OUT", options->to, "The .csv or .json file to write")->required();
    command
        ->add_option("--dialect", options->dialect,
                     "Letters of a PyTorch CSV to read: new, old, or auto (by its content)")
        ->capture_default_str();
    command
        ->add_option(
            "--output-dialect", options->output_dialect,
            "Letters of a CSV to write: new, old, lowered (new, with PyTorch's communication "
            "cells), vocabpipe (keeps E, G, S, T, R), or auto: vocabpipe where vocabulary layers "
            "are sharded or there is an R, else new")
        ->capture_default_str();
    command->callback([options] { convert(*options); });
}

}  // namespace vocabpipe::tool
