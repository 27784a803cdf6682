// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/one_rank_schedule.hpp"
#include "vocabpipe/check_gradients.hpp"
#include "vocabpipe/model_rank.hpp"

#include <memory>

namespace vocabpipe::testing {

/// One stage with all layers of a model, for microbatches of two sequences.
class WholeModelStage {
public:
    WholeModelStage(const ModelConfig& config, Recompute recompute)
        : model_(config,
                 {.layers_per_stage = {config.num_layers},
                  .micro_batch_size = 2,
                  .recompute = recompute},
                 one_rank_schedule(config), 0, *device_) {
        model_.initialise(context_, 3);
    }

    [[nodiscard]] StageModule& stage() { return *model_.modules(nullptr).stages.front(); }
    [[nodiscard]] Context& context() { return context_; }
    /// check_gradients() of the stage, with weights and input moved by `step`.
    [[nodiscard]] GradientCheck check(double step) {
        const ModelConfig& config = model_.config();
        return check_gradients(stage(), {.sequences = 2,
                                         .seq_length = config.seq_length,
                                         .hidden_size = config.hidden_size,
                                         .vocab_size = config.vocab_size,
                                         .step = step});
    }

private:
    std::unique_ptr<Device> device_ = make_host_device();
    Context context_{{.threads = 1, .poll = {}}};
    ModelRank model_;
};

}  // namespace vocabpipe::testing
