// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"
#include "src/tool/config_file.hpp"
#include "src/tool/launch.hpp"
#include "src/tool/model_flags.hpp"
#include "src/train/options/train_options.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// The command line of train_gpt: every flag is a row of the table, but for --help, --version and
/// what ConfigFile adds.
class TrainProgram {
public:
    TrainProgram();
    TrainProgram(const TrainProgram&) = delete;
    TrainProgram& operator=(const TrainProgram&) = delete;

    /// Completes the options when the command line was parsed. Throws UsageError, InputFileError.
    void resolve();

    [[nodiscard]] CLI::App& app() { return app_; }
    [[nodiscard]] const ConfigFile& config() const { return *config_; }
    [[nodiscard]] TrainOptions& options() { return options_; }
    [[nodiscard]] const Launch& launch() const { return launch_; }
    /// The table, with the values that the flags have now.
    [[nodiscard]] std::vector<FlagGroup> flags();

private:
    TrainOptions options_;
    Launch launch_;
    CLI::App app_;
    ModelFlags model_;
    std::shared_ptr<ConfigFile> config_;
};

}  // namespace vocabpipe::tool
