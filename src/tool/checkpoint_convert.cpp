// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>

#include "src/tool/commands.hpp"
#include "src/tool/flag_parser.hpp"
#include "src/tool/interrupt.hpp"
#include "src/train/checkpoint/convert_checkpoint.hpp"

namespace vocabpipe::tool {

namespace {

struct Arguments {
    std::string from, to, dtype;
    uint64_t max_shard_bytes = kMaxShardBytes;
};

void convert(const Arguments& a) {
    const InterruptGuard interrupt;
    ConvertOptions options{.max_shard_bytes = a.max_shard_bytes,
                           .poll = [&] { interrupt.check(); }};
    if (!a.dtype.empty()) options.dtype = a.dtype == "bf16" ? DType::bf16 : DType::fp32;
    const ConvertReport report = convert_checkpoint(a.from, a.to, options);
    std::printf("%s: %zu tensors in %s, %.1f MiB in %zu file%s\n", a.to.c_str(), report.tensors,
                report.dtype == DType::bf16 ? "bf16" : "fp32",
                static_cast<double>(report.bytes) / (1 << 20), report.weight_files,
                report.weight_files == 1 ? "" : "s");
}

}  // namespace

void add_checkpoint_convert(CLI::App& checkpoint) {
    CLI::App* command = checkpoint.add_subcommand(
        "convert",
        "Write the weights of a step or of a model as a Hugging Face folder of their own");
    auto arguments = std::make_shared<Arguments>();
    Arguments& a = *arguments;
    command->add_option("FROM", a.from, "Folder of steps (the newest), a step, or a model")
        ->required();
    command->add_option("TO", a.to, "The new folder, which must not exist")->required();
    command
        ->add_option("--dtype", a.dtype,
                     "fp32 or bf16 (default: bf16 where all weights are, else fp32)")
        ->check(CLI::IsMember({"fp32", "bf16"}));
    add_flags(*command, {{.title = "Options",
                          .flags = {{.names = "--max-shard-size",
                                     .value = FlagBytes{&a.max_shard_bytes},
                                     .help = "Most weights in a file, such as 500MB or 2GiB",
                                     .unit = "BYTES",
                                     .unset = "5GB"}}}});
    command->callback([arguments] { convert(*arguments); });
}

}  // namespace vocabpipe::tool
