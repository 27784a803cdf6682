// SPDX-License-Identifier: Apache-2.0
#include "src/train/evaluate/sequence_losses.hpp"

#include "vocabpipe/error.hpp"

#include <cstring>
#include <span>
#include <utility>

namespace vocabpipe {

SequenceLosses::SequenceLosses(TrainedRank& rank, size_t plan, const EvaluationShape& shape,
                               std::function<bool()> abandon)
    : rank_(rank),
      plan_(plan),
      world_(rank.communicator()),
      output_(sequence_output(rank.output())),
      shape_(shape),
      abandon_(std::move(abandon)),
      batch_(shape, world_.rank()),
      sums_(static_cast<size_t>(shape.sequences_per_replica())) {}

std::vector<SequenceLoss> SequenceLosses::of(int64_t count, const FillSequence& fill) {
    std::vector<SequenceLoss> mine;
    for (int64_t first = 0; first < shape_.microbatches_of(count);
         first += shape_.microbatches_per_step()) {
        world_.agree([&] {
            if (abandon_ && abandon_()) {
                throw Error(ExitCode::terminated, "the evaluation was abandoned");
            }
            batch_.load(first, count, fill);
        });
        run(mine);
    }
    const auto by_rank = world_.all_gather(std::as_bytes(std::span(mine)));
    std::vector<SequenceLoss> losses(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
        const int64_t microbatch = i / shape_.micro_batch_size;
        const auto replica = static_cast<int>(microbatch % shape_.mesh.data);
        const int64_t at =
            microbatch / shape_.mesh.data * shape_.micro_batch_size + i % shape_.micro_batch_size;
        for (int context = 0; context < shape_.mesh.context; ++context) {
            const int rank = shape_.mesh.world_rank(
                {.pipeline = shape_.loss_rank, .data = replica, .context = context});
            SequenceLoss part;
            std::memcpy(&part,
                        by_rank[static_cast<size_t>(rank)].data() +
                            static_cast<size_t>(at) * sizeof(SequenceLoss),
                        sizeof(SequenceLoss));
            losses[static_cast<size_t>(i)].sum += part.sum;
            losses[static_cast<size_t>(i)].tokens += part.tokens;
            losses[static_cast<size_t>(i)].weight += part.weight;
        }
    }
    return losses;
}

void SequenceLosses::run(std::vector<SequenceLoss>& mine) {
    if (output_ != nullptr) output_->evaluate_next_step(shape_.micro_batch_size);
    rank_.run(batch_.microbatches(), plan_);
    if (shape_.mesh.pipeline_rank(world_.rank()) != shape_.loss_rank) return;
    const std::span<const double> losses = rank_.output()->losses();
    if (losses.size() != sums_.size()) {
        throw UsageError(
            "evaluation: the output layer does not provide losses by sequence; implement "
            "SequenceOutput");
    }
    rank_.device().download(reinterpret_cast<const std::byte*>(losses.data()),
                            std::as_writable_bytes(std::span(sums_)));
    for (size_t row = 0; row < sums_.size(); ++row) {
        const SequenceBatch::Labels labels = batch_.labels(static_cast<int64_t>(row));
        mine.push_back({.sum = sums_[row], .tokens = labels.count, .weight = labels.weight});
    }
}

}  // namespace vocabpipe
