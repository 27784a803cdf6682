// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace vocabpipe::tool {

/// Flags that say what model it is, as Megatron names them, or --model, a config.json that says all
/// of it.
class ArchitectureFlags {
public:
    /// Adds them to `app`; values go to `model`. Both must outlive this object.
    ArchitectureFlags(CLI::App& app, ModelConfig& model);

    /// Completes what depends on other flags. Without --model and flags of its own the model is the
    /// one of `loaded`, a folder with a config.json, or empty. Throws UsageError, InputFileError.
    void resolve(const std::string& loaded);

private:
    void take_from(const std::string& path);
    void complete();
    /// Of flags with the family.
    void refuse_contradictions() const;

    CLI::App& app_;
    ModelConfig& model_;
    std::string config_path_;
    std::string model_type_;
    bool swiglu_ = false;
    std::string normalization_, positions_;
    bool group_query_attention_ = false;
    std::optional<float> norm_epsilon_;
    std::optional<double> rotary_base_;
    bool untie_ = false;
};

}  // namespace vocabpipe::tool
