// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/config_json/config_values.hpp"
#include "vocabpipe/model_config.hpp"

namespace vocabpipe {

/// Sets ModelConfig::rotary_channels from partial_rotary_factor, the share of a head's columns that
/// turn: in rope_parameters, else at the top of the file, else from `older_key` (null: there is
/// none), else `otherwise`. Head size and scaling must be set already. InputFileError for numbers
/// of columns that transformers cannot compute: no column, all of an odd number, or an odd number
/// with a scaling by pair.
void read_rotary_share(const ConfigValues& file, const char* older_key, double otherwise,
                       ModelConfig& config);

/// Columns of a head that such a share turns, as transformers and Megatron round it.
[[nodiscard]] int64_t rotary_channels(int64_t head_size, double share);

/// A share that read_rotary_share() turns into the same number of columns.
[[nodiscard]] double rotary_share(const ModelConfig& config);

/// InputFileError if positions turn only a part of a head, which the family does not support.
void refuse_rotary_share(const ConfigValues& file);
/// The same for one object of the file.
void refuse_rotary_share(const StrictJson& rope);

}  // namespace vocabpipe
