// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/draft_stage.hpp"
#include "src/model/key_value_cache.hpp"
#include "src/model/parameter_store.hpp"
#include "src/model/transformer_stage.hpp"
#include "vocabpipe/model_rank.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace vocabpipe {

/// Access to a ModelRank for the library's own checkpoints, optimizer and commands, in types that
/// are not installed.
struct ModelRankInternals {
    [[nodiscard]] static ParameterStore& store(ModelRank& model) { return *model.store_; }
    /// ModelPartition::frozen.
    [[nodiscard]] static const std::vector<bool>& frozen(const ModelRank& model) {
        return model.frozen_;
    }
    /// Generation: a stage of this rank for one sequence of another length, whose earlier tokens
    /// are in `cache`. It computes with the model's weights and these tables, which must have
    /// room for all of the sequence; all three must outlive it. `place`: the rank's.
    [[nodiscard]] static std::unique_ptr<TransformerStage> forward_stage(
        ModelRank& model, const ModelPartition& partition, Mesh::Place place, int stage,
        int64_t length, const KeyValueCache& cache, const RotaryTables& rotary);
    /// StageModule::bytes() of such a stage, for config.seq_length tokens.
    [[nodiscard]] static StageBytes forward_bytes(const ModelConfig& config,
                                                  const ModelPartition& partition, int stage);
    /// Generation: a depth of multi-token prediction of this rank, which has the last stage, as a
    /// stage of its own. The rest as for forward_stage().
    [[nodiscard]] static std::unique_ptr<DraftStage> draft_stage(ModelRank& model,
                                                                 const ModelPartition& partition,
                                                                 const DraftStageOptions& options);
    /// StageModule::bytes() of such a stage, for config.seq_length tokens.
    [[nodiscard]] static StageBytes draft_bytes(const ModelConfig& config,
                                                const ModelPartition& partition);
};

}  // namespace vocabpipe
