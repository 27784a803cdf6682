// SPDX-License-Identifier: Apache-2.0
#include "src/model/check_graph_model.hpp"

#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

void check_graph_model(const ModelConfig& config, const ModelPartition& partition) {
    const auto refuse_if = [](bool wrong, const std::string& what, const std::string& why) {
        if (wrong)
            throw UsageError(what + ": a model of your own (ModelConfig::model_forward) " + why);
    };
    const auto ranks = [&](int count, const std::string& flag) {
        refuse_if(count > 1, flag + " " + std::to_string(count), "is not cut among ranks; use 1");
    };
    for (const int layers : partition.layers_per_stage) {
        refuse_if(layers < 1, "layers_per_stage: " + std::to_string(layers),
                  "has at least one layer in every stage");
    }
    ranks(partition.tensor, "--tensor-model-parallel-size");
    ranks(partition.context, "--context-parallel-size");
    ranks(partition.expert, "--expert-model-parallel-size");
    refuse_if(config.moe.experts > 0, "--num-experts " + std::to_string(config.moe.experts),
              "has no experts of the library's; use 0");
    refuse_if(config.mtp_num_layers > 0,
              "--mtp-num-layers " + std::to_string(config.mtp_num_layers), "has no depths; use 0");
    refuse_if(config.lora.rank > 0, "--lora-rank " + std::to_string(config.lora.rank),
              "has no adapters; use 0");
    refuse_if(!partition.frozen.empty(), "ModelPartition::frozen", "trains all its parameters");
    refuse_if(!partition.shorter_lengths.empty(), "StepWork::shorter_lengths",
              "has sequences of one length");
    refuse_if(!config.has_output_layer && partition.loss != nullptr, "StepWork::loss",
              "has its own loss");
    refuse_if(!config.has_output_layer && !partition.records.columns.empty(), "StepWork::records",
              "has its own loss, and no records of tokens");
}

}  // namespace vocabpipe
