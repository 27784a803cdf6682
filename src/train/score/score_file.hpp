// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/tensor_output.hpp"
#include "vocabpipe/token_record.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace vocabpipe {

/// Records of `samples` samples of `seq_length` tokens each, which all ranks write together: a
/// tensor F32 (samples, seq_length) for each, named after it; of the k likeliest tokens F32
/// "top_logprobs" and I32 kTopIds (samples, seq_length, k). By the extension of `path`:
/// .safetensors, or .npy, which holds one record, or several as (records, samples, seq_length) in
/// the order of TokenRecords, and no list. UsageError for other names. Collective.
[[nodiscard]] std::unique_ptr<TensorOutput> open_score_file(Communicator& world,
                                                            const std::string& path,
                                                            const TokenRecords& records,
                                                            int64_t samples, int64_t seq_length);

/// UsageError unless open_score_file() knows the extension, and its format holds these records.
void check_score_file_name(const std::string& path, const TokenRecords& records);

/// The ids of the k likeliest tokens.
inline constexpr const char* kTopIds = "top_ids";

}  // namespace vocabpipe
