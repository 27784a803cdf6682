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
inline constexpr std::string_view kConfigFile = "config.json";

/// CRC-32C of a file's parts.
struct FileChecksums {
    uint64_t bytes = 0;  ///< of the whole file
    uint32_t head = 0;   ///< of the bytes before the tensors' data; of all bytes without tensors
    std::map<std::string, uint32_t> tensors;
};

/// training.json: the position of a run, and checksums of the step's other files. Written last.
struct TrainingState {
    int64_t step = 0;
    int64_t consumed_samples = 0;    ///< sequences; the data continue after them
    int64_t seq_length = 0;          ///< length of a sample
    uint64_t seed = 0;               ///< of the order of the samples
    std::string dtype;               ///< fp32 or bf16
    std::vector<std::string> flags;  ///< "--flag value" of every flag that decides the bits
    std::map<std::string, FileChecksums> files;
};

[[nodiscard]] std::string print_training_state(const TrainingState& state);
/// An intact file of another version of the format.
class OtherVersionError : public InputFileError {
public:
    using InputFileError::InputFileError;
};

/// InputFileError if it is no such file, has another version (OtherVersionError), or is damaged.
[[nodiscard]] TrainingState parse_training_state(std::string_view text, const std::string& path);

}  // namespace vocabpipe
