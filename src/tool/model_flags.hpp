// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/command.hpp"
#include "src/train/options/train_flags.hpp"

#include <vector>

namespace vocabpipe::tool {

/// Flags that say what runs, as Megatron names them: model, steps, schedule, device. Shared by
/// train_gpt and vocabpipe profile.
class ModelFlags {
public:
    /// Of `options`, which must outlive this object; it stays where it is.
    explicit ModelFlags(TrainOptions& options) : options_(options) {}
    ModelFlags(const ModelFlags&) = delete;
    ModelFlags& operator=(const ModelFlags&) = delete;

    [[nodiscard]] std::vector<FlagGroup> flags();
    /// What else scripts for training have.
    [[nodiscard]] FlagGroup flags_of_scripts() { return megatron_flags(given_.megatron); }
    [[nodiscard]] const MegatronFlags& of_scripts() const { return given_.megatron; }

    /// Completes options that depend on others, once the flags were read. Throws UsageError, or
    /// InputFileError for a config.json.
    void resolve(const GivenFlags& read);

private:
    TrainOptions& options_;
    UnresolvedFlags given_;
};

}  // namespace vocabpipe::tool
