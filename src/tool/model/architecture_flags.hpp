// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/config/fields.hpp"
#include "src/tool/support/command.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/model_config.hpp"

#include <string>

namespace vocabpipe::tool {

/// Makes one model from architecture_flags() after they were read: from a config.json that defines
/// all of it, or from flags that define it together.
class ArchitectureFlags {
public:
    /// All must outlive this object.
    ArchitectureFlags(const GivenFlags& read, ModelConfig& model, UnresolvedFlags& given)
        : read_(read), model_(model), given_(given) {}

    /// Completes values that depend on other flags. Without --model and flags of its own, the model
    /// is that of `loaded`, a folder with a config.json, or empty. UsageError, InputFileError.
    void resolve(const std::string& loaded);

private:
    /// `path`: of the config.json, for messages and notes.
    void take(ModelConfig file, const std::string& path);
    void complete(const std::string& loaded);
    void set_rotary_percent(double share);
    /// Sets the given flags of these fields once more, after a file or a family has set its own.
    void set_again(bool (*chosen)(const ModelField& field));
    void set_bias_rate();
    /// UsageError if flags contradict the family.
    void refuse_contradictions() const;

    const GivenFlags& read_;
    ModelConfig& model_;
    UnresolvedFlags& given_;
};

}  // namespace vocabpipe::tool
