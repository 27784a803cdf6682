// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/architecture_flags.hpp"
#include "src/train/options/train_options.hpp"

#include <CLI/CLI.hpp>
#include <string>

namespace vocabpipe::tool {

/// Flags that say what runs, as Megatron names them: model, steps, schedule, device. Shared by
/// train_gpt and vocabpipe profile.
class ModelFlags {
public:
    /// Adds them to `app`; values go to `options`. Both must outlive this object, which stays where
    /// it is.
    ModelFlags(CLI::App& app, TrainOptions& options);
    ModelFlags(const ModelFlags&) = delete;
    ModelFlags& operator=(const ModelFlags&) = delete;

    /// Completes options that depend on others, once the command line was parsed. Throws
    /// UsageError, or InputFileError for a config.json.
    void resolve();

    /// What resolve() reads.
    [[nodiscard]] UnresolvedFlags& unresolved() { return given_; }

private:
    CLI::App& app_;
    TrainOptions& options_;
    UnresolvedFlags given_;
    ArchitectureFlags architecture_;
};

}  // namespace vocabpipe::tool
