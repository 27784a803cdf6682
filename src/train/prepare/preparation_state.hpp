// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "src/train/data/megatron_writer.hpp"
#include "src/train/text/utf8_check.hpp"

namespace vocabpipe {

/// How far a preparation is: the file PREFIX.prepare.partial, from which it goes on after a kill.
struct PreparationState {
    /// What was asked for: flags, files, their sizes and times. A preparation goes on only if all
    /// of it is the same.
    std::string arguments;
    size_t input = 0;    ///< inputs before it are written
    int64_t chunks = 0;  ///< chunks of this input that are written
    MegatronPosition position;
    int64_t bad_lines = 0;
    TextCheck text;                ///< of the inputs that are written
    int64_t model_crc = kNoModel;  ///< CRC-32C of PREFIX.model.partial

    static constexpr int64_t kNoModel = -1;  ///< no vocabulary was trained

    [[nodiscard]] static std::string file_of(const std::string& prefix) {
        return prefix + ".prepare.partial";
    }

    /// Writes the file and makes it durable. OutputFileError.
    void save(const std::string& prefix) const;
};

/// The state that a killed preparation left.
struct FoundState {
    std::optional<PreparationState> state;  ///< none: begin anew
    std::string why_anew;                   ///< one line; empty: nothing was left
};
/// Looks for the state of a preparation of so many inputs with these arguments, and for the partial
/// files that belong to it.
[[nodiscard]] FoundState find_preparation_state(const std::string& prefix,
                                                const std::string& arguments, size_t inputs);

}  // namespace vocabpipe
