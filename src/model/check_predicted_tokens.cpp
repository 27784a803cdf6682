// SPDX-License-Identifier: Apache-2.0
#include "src/model/check_predicted_tokens.hpp"

#include "src/model/blocks/layer_options.hpp"
#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

void check_predicted_tokens(const ModelConfig& config, const ModelPartition& partition) {
    if (config.mtp_num_layers == 0) return;
    const auto refuse = [&](bool wrong, const std::string& what, const std::string& remedy) {
        if (!wrong) return;
        throw UsageError("--mtp-num-layers " + std::to_string(config.mtp_num_layers) +
                         ": is not supported with " + what + "; " + remedy +
                         ", or --mtp-num-layers 0");
    };
    refuse(has_embedded_tokens(config),
           "learned positions or scaled embeddings (" + config.family + ")",
           "use a family with rotary positions, such as llama");
    refuse(config.lora.rank > 0, "adapters", "train all weights");
    refuse(!partition.frozen.empty(), "frozen parameters", "train all weights");
    refuse(partition.context > 1, "--context-parallel-size " + std::to_string(partition.context),
           "use 1");
    refuse(!partition.shorter_lengths.empty(), "sequences of several lengths", "use one length");
    refuse(partition.loss != nullptr || !partition.records.columns.empty(),
           "records of tokens in training, and losses of them", "train with the cross-entropy");
    refuse(!partition.stage_bytes.empty(), "stages of your own", "use the model's");
}

}  // namespace vocabpipe
