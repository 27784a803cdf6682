// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/parameter_store.hpp"
#include "src/model/transformer_stage.hpp"
#include "vocabpipe/model_rank.hpp"

#include <cstdint>

namespace vocabpipe {

/// What the library's own checkpoints, optimizer and commands need of a ModelRank, in types that
/// are not installed.
struct ModelRankInternals {
    [[nodiscard]] static ParameterStore& store(ModelRank& model) { return *model.store_; }
    /// The layers of a model that is one stage, for one sequence of another length, at most
    /// seq_length.
    [[nodiscard]] static TransformerStage whole_stage(ModelRank& model, int64_t length);
};

}  // namespace vocabpipe
