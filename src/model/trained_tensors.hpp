// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/model_layers.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/trained_parts.hpp"

#include <vector>

namespace vocabpipe {

/// Which tensors of a model are trained, by its layers: for sizes and costs, without weights.
class TrainedTensors {
public:
    /// The tensors of a layer, or of another part of the model.
    struct Part {
        ElementCount trained, frozen;
        double share = 1;  ///< trained part of the elements that a token meets; 1 without any
        [[nodiscard]] bool any() const { return trained.total() > 0; }
    };

    /// `layers`: of the model. `frozen`: ModelPartition::frozen.
    TrainedTensors(const ModelConfig& config, const ModelLayers& layers,
                   const std::vector<bool>& frozen);

    [[nodiscard]] const Part& layer(int layer) const { return layers_[static_cast<size_t>(layer)]; }
    [[nodiscard]] const Part& positions() const { return positions_; }
    [[nodiscard]] const Part& final_norm() const { return final_norm_; }
    [[nodiscard]] bool embedding() const { return embedding_; }
    [[nodiscard]] bool output() const { return output_; }  ///< the embedding when tied
    /// The first layer that a backward must reach, by the rule of TrainedParts::first_backward; the
    /// number of layers where none.
    [[nodiscard]] int first_backward_layer() const;
    /// [stage] Trained part of the work of the stage's layers: the mean of their shares.
    [[nodiscard]] std::vector<double> stage_shares(const std::vector<int>& layers_per_stage) const;
    /// `layers_per_stage`: its sum is the number of layers.
    [[nodiscard]] TrainedParts parts(const std::vector<int>& layers_per_stage) const;

private:
    bool all_ = true;  ///< no tensor is frozen
    std::vector<Part> layers_;
    std::vector<bool> routed_;  ///< [layer] whether it has experts
    Part positions_, final_norm_;
    bool embedding_ = true, output_ = true;
};

}  // namespace vocabpipe
