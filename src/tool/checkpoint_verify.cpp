// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "src/tool/commands.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"

namespace vocabpipe::tool {

namespace {

void verify(const std::string& path) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
        const SafetensorsFile file(path);
        std::printf("%s: a whole file of %zu tensors; a file alone has no checksums\n",
                    path.c_str(), file.header().tensors.size());
        return;
    }
    const Checkpoint checkpoint(find_checkpoint(path, false));
    if (!checkpoint.state()) {
        std::printf(
            "%s: all %zu tensors have the shapes of config.json; a model alone has no checksums\n",
            checkpoint.folder().c_str(), checkpoint.weights().tensors().size());
        return;
    }
    checkpoint.verify();
    std::printf("%s: complete after step %lld; all shapes and checksums are right\n",
                checkpoint.folder().c_str(), static_cast<long long>(checkpoint.state()->step));
}

}  // namespace

void add_checkpoint_verify(CLI::App& checkpoint) {
    CLI::App* command = checkpoint.add_subcommand(
        "verify", "Read every byte and compare checksums, names and shapes; exit code 3 if wrong");
    auto path = std::make_shared<std::string>();
    command->add_option("PATH", *path, "Folder of steps (the newest), a step, a model, a file")
        ->required();
    command->callback([path] { verify(*path); });
}

}  // namespace vocabpipe::tool
