// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/config_json/config_values.hpp"
#include "vocabpipe/model_config.hpp"

namespace vocabpipe {

/// Sets ModelConfig::rotary_channels from partial_rotary_factor, the share of a head's columns that
/// turn: of rope_parameters, else of the model, else from `older_key` (null: there is none), else
/// `otherwise`. Head size and scaling must be known. InputFileError where transformers computes
/// nothing: no column, all of an odd number, or an odd number with a scaling by pair.
void read_rotary_share(const ConfigValues& file, const char* older_key, double otherwise,
                       ModelConfig& config);

/// Columns of a head that such a share turns, as transformers and Megatron round it.
[[nodiscard]] int64_t rotary_channels(int64_t head_size, double share);

/// A share of which read_rotary_share() makes the same number of columns again.
[[nodiscard]] double rotary_share(const ModelConfig& config);

/// InputFileError where the positions turn a part of a head, which the family does not have.
void refuse_rotary_share(const ConfigValues& file);
/// The same of one object of the file.
void refuse_rotary_share(const StrictJson& rope);

}  // namespace vocabpipe
