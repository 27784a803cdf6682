// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "vocabpipe/error.hpp"

namespace vocabpipe {

inline constexpr std::string_view kTrainingFile = "training.json";
inline constexpr std::string_view kOptimizerFile = "optimizer.safetensors";
/// SentencePiece's, for generate; there where the run's data or its first weights have one.
inline constexpr std::string_view kTokenizerFile = "tokenizer.model";
inline constexpr std::string_view kConfigFile = "config.json";

/// CRC-32C of a file's parts.
struct FileChecksums {
    uint64_t bytes = 0;  ///< of the whole file
    uint32_t head = 0;   ///< what precedes the tensors' data; the whole file where there are none
    std::map<std::string, uint32_t> tensors;
};

/// training.json: where a run was, and what its other files must be. Written last.
struct TrainingState {
    int64_t step = 0;
    int64_t consumed_samples = 0;    ///< sequences, from which the data go on
    int64_t seq_length = 0;          ///< which cuts the data into samples
    uint64_t seed = 0;               ///< which orders them
    std::string dtype;               ///< fp32 or bf16
    std::vector<std::string> flags;  ///< "--flag value" of all that decides the bits
    std::map<std::string, FileChecksums> files;
};

[[nodiscard]] std::string print_training_state(const TrainingState& state);
/// A whole file of another version of the format: no damage.
class OtherVersionError : public InputFileError {
public:
    using InputFileError::InputFileError;
};

/// InputFileError for what is not such a file, another version, or damaged.
[[nodiscard]] TrainingState parse_training_state(std::string_view text, const std::string& path);

}  // namespace vocabpipe
