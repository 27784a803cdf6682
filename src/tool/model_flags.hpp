// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/architecture_flags.hpp"
#include "src/train/train_options.hpp"

#include <CLI/CLI.hpp>
#include <string>

namespace vocabpipe::tool {

/// Flags that say what runs, as Megatron names them: model, microbatches, schedule, vocabulary
/// mode, data type. Shared by train_gpt and vocabpipe profile.
class ModelFlags {
public:
    /// Adds them to `app`; values go to `options`. Both must outlive this object.
    ModelFlags(CLI::App& app, TrainOptions& options);

    /// Completes options that depend on others, once the command line was parsed. Throws
    /// UsageError, or InputFileError for a config.json.
    void resolve();

private:
    CLI::App& app_;
    TrainOptions& options_;
    ArchitectureFlags architecture_;
    std::string vocab_mode_ = "one_barrier";
    std::string recompute_;
    bool recompute_activations_ = false;
    std::string dtype_ = "fp32";
    bool bf16_ = false;
};

}  // namespace vocabpipe::tool
