// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "src/support/text_layout.hpp"
#include "src/tool/commands.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"

namespace vocabpipe::tool {

namespace {

void print(const std::string& path, const std::string& what) {
    std::printf("%s\n", wrap_text(path + ": " + what, 4).c_str());
}

std::string tensors(size_t count) {
    return counted(static_cast<int64_t>(count), "tensor");
}

void verify(const std::string& path) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
        const SafetensorsFile file(path);
        print(path, "a whole file of " + tensors(file.header().tensors.size()) +
                        "; a file alone has no checksums");
        return;
    }
    const Checkpoint checkpoint(find_checkpoint(path, false));
    if (!checkpoint.state()) {
        print(checkpoint.folder(), "the shapes of config.json hold for " +
                                       tensors(checkpoint.weights().tensors().size()) +
                                       "; a model alone has no checksums");
        return;
    }
    checkpoint.verify();
    print(checkpoint.folder(), "complete after step " + std::to_string(checkpoint.state()->step) +
                                   "; all shapes and checksums are right");
}

}  // namespace

Command checkpoint_verify_command() {
    const auto path = std::make_shared<std::string>();
    return {
        .name = "verify",
        .description =
            "Read every byte and compare checksums, names and shapes; exit code 3 if wrong",
        .flags = {{.flags = {{.names = "PATH",
                              .value = path.get(),
                              .help = "Folder of steps (the newest), a step, a model, a file"}}}},
        .run = [path](const GivenFlags&) { verify(*path); }};
}

}  // namespace vocabpipe::tool
