// SPDX-License-Identifier: Apache-2.0
// What becomes of flags that scripts for Megatron have and that set nothing here: help, refusals
// and docs/megatron.md are made of these rows.
#pragma once

#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace vocabpipe {

/// Words behind a flag that is only read.
enum class Takes : uint8_t { nothing, word, words };

/// Read and without effect: what it asks for always holds, or there is nothing to choose.
struct AcceptedFlag {
    std::string_view name;
    std::string_view why;  ///< for help and docs
    Takes takes = Takes::nothing;
    std::string_view unit = {};    ///< what stands for the word in help texts
    std::string_view only = {};    ///< the one value that holds, a name or number; empty: all do
    std::string_view remedy = {};  ///< for another value, or a model for which it does not hold
    /// Whether it holds for a model; null: for all.
    bool (*holds)(const ModelConfig& model) = nullptr;
};

/// Would change results: refused, and no row of the table of flags.
struct RefusedFlag {
    std::string_view name;
    std::string_view why;  ///< what is there instead, and the remedy
};

/// A flag that means something else here where it is not given.
struct MegatronDefault {
    std::string_view flag;
    std::string_view there;
    /// Only where flags describe the model.
    bool of_model = false;
    /// What holds here for a model, where the flag's row does not say it.
    std::string_view (*here)(const ModelConfig& model) = nullptr;
    /// Models that have it; null: all.
    bool (*counts)(const ModelConfig& model) = nullptr;
};

[[nodiscard]] std::span<const AcceptedFlag> accepted_flags();
[[nodiscard]] std::span<const RefusedFlag> refused_flags();
[[nodiscard]] std::span<const MegatronDefault> megatron_defaults();

/// Whether an accepted flag may have the value.
[[nodiscard]] bool may_be(const AcceptedFlag& flag, std::string_view value);

/// What is said of a flag that is refused; "" of others.
[[nodiscard]] std::string refusal_of(std::string_view name);

}  // namespace vocabpipe
