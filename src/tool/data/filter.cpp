// SPDX-License-Identifier: Apache-2.0
// vocabpipe data filter: copies the chosen samples of token files, or their documents.
#include <cstdio>
#include <memory>
#include <string>

#include "src/tool/data/data_flags.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/interrupt.hpp"
#include "src/tool/support/phase_progress.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/options/train_flags.hpp"
#include "src/train/select/filter_data.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

struct FilterArguments {
    FilterOptions options;
    std::string format = "megatron";
};

/// The prefix, even if one of its files was named.
std::string filtered_prefix(std::string output) {
    if (output.ends_with(".bin") || output.ends_with(".idx")) output.resize(output.size() - 4);
    if (output.empty() || output.ends_with('/')) {
        throw UsageError("--output " + output + ": is a folder; use a prefix, such as data/part");
    }
    return output;
}

void filter(FilterArguments& o) {
    if (o.options.output.empty() && o.options.ids.empty()) {
        throw UsageError("--output: give a prefix for the copy, or --ids FILE for a list alone");
    }
    if (!o.options.output.empty()) o.options.output = filtered_prefix(o.options.output);
    o.options.llmc = o.format == "llmc";
    const InterruptGuard interrupt;
    PhaseProgress progress(true);
    o.options.poll = [&] { interrupt.check(); };
    o.options.progress = [&](int64_t done, int64_t all) { progress.show("copying", done, all); };
    const FilterTotals totals = filter_data(o.options);
    progress.clear();
    if (!o.options.output.empty()) {
        std::printf("%s: %s, %s, %s, token type %s\n", o.options.output.c_str(),
                    counted(totals.samples, "chosen sample").c_str(),
                    counted(totals.tokens, "token").c_str(), counted(totals.bytes, "byte").c_str(),
                    std::string(token_type_name(totals.type)).c_str());
    }
    if (!o.options.ids.empty()) {
        std::printf("%s: %s\n", o.options.ids.c_str(),
                    counted(totals.documents, "document").c_str());
    }
}

}  // namespace

Command data_filter_command() {
    const auto o = std::make_shared<FilterArguments>();
    std::vector<Flag> input = training_data_flags(o->options.data);
    input.push_back({.names = "--seq-length",
                     .value = &o->options.seq_length,
                     .help = "Tokens of a sample, as the samples were chosen",
                     .range = between(1, kLargestSize),
                     .absent = 0,
                     .required = true});
    input.push_back({.names = "--subset",
                     .value = &o->options.subset,
                     .help = "The chosen samples, a file of vocabpipe select run",
                     .unit = "FILE",
                     .required = true});
    return {
        .name = "filter",
        .description =
            "Copy the chosen samples of token files, or their documents\n"
            "  vocabpipe data filter --data-path CORPUS --seq-length 1024\n"
            "      --subset subset.safetensors --output PREFIX",
        .flags = {{.flags = input},
                  {.title = "Output",
                   .flags = {{.names = "--output",
                              .value = &o->options.output,
                              .help =
                                  "Prefix of the copy: PREFIX.bin and, for Megatron, PREFIX.idx",
                              .unit = "PREFIX"},
                             {.names = "--format",
                              .value = &o->format,
                              .help = "megatron: an indexed dataset; llmc: a token shard of llm.c",
                              .unit = "NAME",
                              .choices = {"megatron", "llmc"}},
                             {.names = "--documents",
                              .value = &o->options.documents,
                              .help = "Copy the whole documents that have a chosen sample"},
                             {.names = "--ids",
                              .value = &o->options.ids,
                              .help = "Write the numbers of these documents, one per line",
                              .unit = "FILE"}}}},
        .run = [o](const GivenFlags&) { filter(*o); }};
}

}  // namespace vocabpipe::tool
