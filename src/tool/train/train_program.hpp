// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/tool/model/model_flags.hpp"
#include "src/tool/support/config_file.hpp"
#include "src/train/options/megatron_table.hpp"
#include "src/train/options/train_options.hpp"

#include <vector>

namespace vocabpipe::tool {

/// The command line of train_gpt: every flag is a row of the table, except --help, --version and
/// those of ConfigFile.
class TrainProgram {
public:
    TrainProgram() : model_(options_), config_(flags(), refusal_of) {}
    TrainProgram(const TrainProgram&) = delete;
    TrainProgram& operator=(const TrainProgram&) = delete;

    /// The command; this object must outlive it.
    [[nodiscard]] Command command();
    /// Completes the options after the command line was read. UsageError, InputFileError.
    void resolve(const GivenFlags& given);

    [[nodiscard]] const ConfigFile& config() const { return config_; }
    [[nodiscard]] TrainOptions& options() { return options_; }
    [[nodiscard]] const Launch& launch() const { return launch_; }
    /// The table, with the current values of the flags.
    [[nodiscard]] std::vector<FlagGroup> flags();

private:
    /// Applies --distributed-timeout-minutes.
    void set_timeout(const GivenFlags& given);
    /// Applies --train-samples.
    void count_steps(const GivenFlags& given);

    TrainOptions options_;
    Launch launch_;
    ModelFlags model_;
    ConfigFile config_;
};

}  // namespace vocabpipe::tool
