// SPDX-License-Identifier: Apache-2.0
// vocabpipe checkpoint verify: reads every byte and checks checksums, names and shapes.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "src/support/text_layout.hpp"
#include "src/tool/model/config_notes.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/long_work.hpp"
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
        print(path, "complete file with " + tensors(file.header().tensors.size()) +
                        "; a single file has no checksums");
        return;
    }
    const Checkpoint checkpoint(find_checkpoint(path, false));
    {
        const LongWork work("reading " + checkpoint.folder());
        checkpoint.verify();
    }
    print_config_notes(checkpoint.config_path());
    if (!checkpoint.state()) {
        print(checkpoint.folder(), "shapes match config.json for " +
                                       tensors(checkpoint.weights().tensors().size()) +
                                       "; a model has no checksums");
        return;
    }
    print(checkpoint.folder(), "complete after step " + std::to_string(checkpoint.state()->step) +
                                   "; all shapes and checksums match");
}

}  // namespace

Command checkpoint_verify_command() {
    const auto path = std::make_shared<std::string>();
    return {
        .name = "verify",
        .description =
            "Read every byte and check checksums, names and shapes; exit with code 3 on a mismatch",
        .flags = {{.flags = {{.names = "PATH",
                              .value = path.get(),
                              .help = "Folder of saved steps (the newest is used), a saved step, a "
                                      "model or a file"}}}},
        .run = [path](const GivenFlags&) { verify(*path); }};
}

}  // namespace vocabpipe::tool
