// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/support/command.hpp"
#include "src/train/options/train_flags.hpp"

#include <vector>

namespace vocabpipe::tool {

/// The flags about what runs, with Megatron's names: model, steps, schedule, device. Shared by
/// train_gpt and vocabpipe profile.
class ModelFlags {
public:
    /// `options` must outlive this object and not move.
    explicit ModelFlags(TrainOptions& options) : options_(options) {}
    ModelFlags(const ModelFlags&) = delete;
    ModelFlags& operator=(const ModelFlags&) = delete;

    [[nodiscard]] std::vector<FlagGroup> flags();
    /// Further flags of training scripts.
    [[nodiscard]] FlagGroup flags_of_scripts() { return megatron_flags(given_.megatron); }
    [[nodiscard]] const MegatronFlags& of_scripts() const { return given_.megatron; }

    /// Completes options that depend on others, after the flags were read. UsageError, or
    /// InputFileError for a config.json.
    void resolve(const GivenFlags& read);

private:
    /// The adapters of --load-adapter.
    void take_adapters(const GivenFlags& read);

    TrainOptions& options_;
    UnresolvedFlags given_;
};

}  // namespace vocabpipe::tool
