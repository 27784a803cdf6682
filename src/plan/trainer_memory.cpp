// SPDX-License-Identifier: Apache-2.0
#include "src/plan/trainer_memory.hpp"

#include "src/plan/kernel_rates.hpp"

#include <algorithm>
#include <cmath>

namespace vocabpipe {

namespace {

/// Bytes of tensors that a layer leaves to its backward besides those of this library's runs.
struct LeftBytes {
    double residual = 0;  ///< inputs of its sublayers
    double normed = 0;    ///< outputs of its norms
    double scores = 0;
};

LeftBytes left_by(const BlockWork& work, const PlannedTrainer& trainer, const Candidate& candidate,
                  const ModelConfig& config) {
    const auto width = static_cast<double>(size_of(config.dtype));
    const auto tokens = static_cast<double>(candidate.micro_batch_size) *
                        static_cast<double>(config.seq_length) / candidate.mesh.context;
    const auto hidden = static_cast<double>(config.hidden_size);
    const double tensor = candidate.mesh.tensor;
    LeftBytes left;
    if (!trainer.sequence_parallel) {
        // Each of two sublayers moves 3 h for its residual, and each norm reads and writes h.
        const double norms = static_cast<double>(work.moved_of_residual.forward) / 2 - 3 * hidden;
        const double more = tokens * (1 - 1 / tensor) * width;
        left.residual = more * 2 * hidden;
        left.normed = more * norms;
    }
    left.scores = tokens / tensor * static_cast<double>(work.heads) *
                  static_cast<double>(config.seq_length) *
                  kernel_rates(trainer.kernels).score_bytes_saved;
    return left;
}

}  // namespace

void add_trainer_bytes(StageBytes& stage, const PlannedTrainer& trainer, const Candidate& candidate,
                       const ModelConfig& config, const std::vector<const ModelLayer*>& layers) {
    double saved = 0, recomputed = 0, workspace = 0;
    for (const ModelLayer* layer : layers) {
        const LeftBytes left = left_by(layer->work(config.seq_length), trainer, candidate, config);
        switch (candidate.recompute) {
            case Recompute::none:
                saved += left.residual + left.normed + left.scores;
                break;
            case Recompute::selective:
                saved += left.residual;
                recomputed += left.normed;
                workspace = std::max(workspace, left.scores);  // of one layer at a time
                break;
            case Recompute::full:
                recomputed += left.residual + left.normed + left.scores;
                break;
        }
    }
    const auto bytes = [](double value) { return static_cast<int64_t>(std::llround(value)); };
    stage.saved += bytes(saved);
    stage.recomputed += bytes(recomputed);
    stage.forward_workspace += bytes(workspace);
    stage.backward_workspace += bytes(workspace);
    stage.input_gradient_workspace += bytes(workspace);
    const auto count = static_cast<int64_t>(layers.size());
    if (candidate.recompute != Recompute::full || trainer.recompute_layers == 0 ||
        trainer.recompute_layers >= count) {
        return;
    }
    // The first layers' input is the stage's own.
    const int64_t units = (count + trainer.recompute_layers - 1) / trainer.recompute_layers;
    const int64_t rows = candidate.micro_batch_size * config.seq_length / candidate.mesh.context /
                         (trainer.sequence_parallel ? candidate.mesh.tensor : 1);
    stage.saved += (units - 1) * rows * config.hidden_size * size_of(config.dtype);
    stage.recomputed = stage.recomputed * trainer.recompute_layers / count;
}

}  // namespace vocabpipe
