// SPDX-License-Identifier: Apache-2.0
// vocabpipe checkpoint convert: writes the weights of a step or model as a new Hugging Face folder.
#include <cstdio>
#include <memory>
#include <string>

#include "src/tool/support/commands.hpp"
#include "src/tool/support/interrupt.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/train/checkpoint/convert_checkpoint.hpp"

namespace vocabpipe::tool {

namespace {

struct CheckpointConvertArguments {
    std::string from, to, dtype, adapter;
    bool adapter_only = false;
    uint64_t max_shard_bytes = kMaxShardBytes;
};

void convert_weights(const CheckpointConvertArguments& a) {
    const InterruptGuard interrupt;
    ConvertOptions options{.max_shard_bytes = a.max_shard_bytes,
                           .adapter = a.adapter,
                           .adapter_only = a.adapter_only,
                           .poll = [&] { interrupt.check(); }};
    if (!a.dtype.empty()) options.dtype = a.dtype == "bf16" ? DType::bf16 : DType::fp32;
    const ConvertReport report = [&] {
        const LongWork work("converting " + a.from);
        return convert_checkpoint(a.from, a.to, options);
    }();
    std::printf("%s: %zu tensors in %s, %.1f MiB in %zu file%s\n", a.to.c_str(), report.tensors,
                report.dtype == DType::bf16 ? "bf16" : "fp32",
                static_cast<double>(report.bytes) / (1 << 20), report.weight_files,
                report.weight_files == 1 ? "" : "s");
}

}  // namespace

Command checkpoint_convert_command() {
    const auto a = std::make_shared<CheckpointConvertArguments>();
    return {
        .name = "convert",
        .description = "Write the weights of a saved step or a model to a new Hugging Face folder",
        .flags =
            {{.flags =
                  {{.names = "FROM",
                    .value = &a->from,
                    .help = "Folder of saved steps (the newest is used), a saved step, or a model"},
                   {.names = "TO", .value = &a->to, .help = "New folder; must not exist"},
                   {.names = "--dtype",
                    .value = &a->dtype,
                    .help = "Type of the weights: fp32 or bf16",
                    .choices = {"fp32", "bf16"},
                    .unset = "bf16 if all weights are bf16, else fp32"},
                   {.names = "--max-shard-size",
                    .value = FlagBytes{&a->max_shard_bytes},
                    .help = "Maximum size of a weight file, such as 500MB or 2GiB",
                    .unit = "BYTES",
                    .unset = "5GB"},
                   {.names = "--load-adapter",
                    .value = &a->adapter,
                    .help = "Merge the adapters that PEFT saved in a folder into the model",
                    .unit = "FOLDER"},
                   {.names = "--adapter-only",
                    .value = &a->adapter_only,
                    .help = "Write the adapters of a step as PEFT's folder, instead of merging "
                            "them into the model",
                    .excludes = {"--load-adapter", "--max-shard-size"}}}}},
        .run = [a](const GivenFlags&) { convert_weights(*a); }};
}

}  // namespace vocabpipe::tool
