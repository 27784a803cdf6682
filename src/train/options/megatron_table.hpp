// SPDX-License-Identifier: Apache-2.0
// Flags of Megatron's scripts that set nothing here. Help, refusals and docs/megatron.md are
// generated from these rows.
#pragma once

#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace vocabpipe {

/// The words that follow an accepted flag.
enum class Takes : uint8_t { nothing, word, words };

/// Accepted without effect: what it asks for always holds, or there is no choice.
struct AcceptedFlag {
    std::string_view name;
    std::string_view why;  ///< for help and docs
    Takes takes = Takes::nothing;
    std::string_view unit = {};    ///< placeholder of the word in help texts
    std::string_view only = {};    ///< the one value that is accepted, a name or number; empty: any
    std::string_view remedy = {};  ///< for another value, or a model that does not allow it
    /// Whether a model allows it; null: all do.
    bool (*holds)(const ModelConfig& model) = nullptr;
};

/// Would change results, so it is refused; not in the table of flags.
struct RefusedFlag {
    std::string_view name;
    std::string_view why;  ///< the alternative here, and the remedy
};

/// A flag whose default differs from Megatron's.
struct MegatronDefault {
    std::string_view flag;
    std::string_view there;
    /// Counts only if flags describe the model.
    bool of_model = false;
    /// The default here for a model, if the flag's row does not say it.
    std::string_view (*here)(const ModelConfig& model) = nullptr;
    /// Models that it concerns; null: all.
    bool (*counts)(const ModelConfig& model) = nullptr;
};

[[nodiscard]] std::span<const AcceptedFlag> accepted_flags();
[[nodiscard]] std::span<const RefusedFlag> refused_flags();
[[nodiscard]] std::span<const MegatronDefault> megatron_defaults();

/// Whether an accepted flag allows the value.
[[nodiscard]] bool may_be(const AcceptedFlag& flag, std::string_view value);

/// The message for a refused flag; "" for others.
[[nodiscard]] std::string refusal_of(std::string_view name);

}  // namespace vocabpipe
