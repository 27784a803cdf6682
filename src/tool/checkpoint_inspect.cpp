// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "src/tool/commands.hpp"
#include "src/tool/table.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/tensor_folder.hpp"
#include "src/train/checkpoint/training_state.hpp"

namespace vocabpipe::tool {

namespace {

void add_row(Table& table, const SafetensorsFile& file, const StoredTensor& tensor) {
    table.row({readable(tensor.name), std::string(name_of(tensor.type)), shape_text(tensor.shape),
               std::filesystem::path(file.path()).filename().string(),
               std::to_string(tensor.end - tensor.begin)});
}

void print(const Table& table, size_t tensors, uint64_t bytes) {
    table.print();
    std::printf("%zu tensors, %.1f MiB\n", tensors, static_cast<double>(bytes) / (1 << 20));
}

void print_state(const std::string& folder) {
    const std::string path = folder + "/" + std::string(kTrainingFile);
    const TrainingState state = parse_training_state(InputFile(path).text(), path);
    std::printf("step              %lld\n", static_cast<long long>(state.step));
    std::printf("consumed samples  %lld\n", static_cast<long long>(state.consumed_samples));
    std::printf("sequence length   %lld\n", static_cast<long long>(state.seq_length));
    std::printf("seed              %llu\n", static_cast<unsigned long long>(state.seed));
    std::printf("type              %s\n", state.dtype.c_str());
    std::string flags;
    for (const std::string& flag : state.flags) flags += " " + readable(flag);
    std::printf("flags            %s\n", flags.c_str());
}

void inspect(const std::string& path) {
    Table table;
    table.row({"tensor", "type", "shape", "file", "bytes"}, {true, true, true, true});
    size_t tensors = 0;
    uint64_t bytes = 0;
    const auto add = [&](const SafetensorsFile& file, const StoredTensor& tensor) {
        add_row(table, file, tensor);
        ++tensors;
        bytes += tensor.end - tensor.begin;
    };
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
        const SafetensorsFile file(path);
        for (const StoredTensor& t : file.header().tensors) add(file, t);
        for (const auto& [key, value] : file.header().metadata) {
            std::printf("metadata %s: %s\n", readable(key).c_str(), readable(value).c_str());
        }
        print(table, tensors, bytes);
        return;
    }
    const CheckpointSource source = find_checkpoint(path, false);
    std::printf("%s\n", source.folder.c_str());
    if (source.training) print_state(source.folder);
    const TensorFolder weights(source.folder);
    for (const auto& [name, found] : weights.tensors()) add(*found.file, *found.tensor);
    if (source.training) {
        const SafetensorsFile optimizer(source.folder + "/" + std::string(kOptimizerFile));
        for (const StoredTensor& t : optimizer.header().tensors) add(optimizer, t);
    }
    print(table, tensors, bytes);
}

}  // namespace

void add_checkpoint_inspect(CLI::App& checkpoint) {
    CLI::App* command =
        checkpoint.add_subcommand("inspect",
                                  "Show the tensors and the training state of a step, "
                                  "a Hugging Face folder or a safetensors file");
    auto path = std::make_shared<std::string>();
    command->add_option("PATH", *path, "Folder of steps (the newest), a step, a model, a file")
        ->required();
    command->callback([path] { inspect(*path); });
}

}  // namespace vocabpipe::tool
