// SPDX-License-Identifier: Apache-2.0
#include "src/train/evaluate/sequence_losses.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstring>

namespace vocabpipe {

SequenceLosses::SequenceLosses(TrainedRank& rank, size_t plan, const EvaluationShape& shape)
    : rank_(rank), plan_(plan), world_(rank.communicator()), output_(rank.output()), shape_(shape) {
    const auto per_microbatch = static_cast<size_t>(shape.micro_batch_size * shape.seq_length);
    const size_t total = per_microbatch * static_cast<size_t>(shape.microbatches);
    tokens_.resize(total);
    labels_.resize(total);
    if (shape.separate_documents) first_visible_.resize(total);
    counted_.resize(total);
    sums_.resize(static_cast<size_t>(shape.micro_batch_size * shape.microbatches));
    for (int j = 0; j < shape.microbatches; ++j) {
        const size_t at = static_cast<size_t>(j) * per_microbatch;
        microbatches_.push_back(
            {.index = j,
             .sequences = shape.micro_batch_size,
             .seq_length = shape.seq_length,
             .tokens = std::span(tokens_).subspan(at, per_microbatch),
             .labels = std::span(labels_).subspan(at, per_microbatch),
             .loss_gradient = std::span(counted_).subspan(at, per_microbatch),
             .first_visible = shape.separate_documents
                                  ? std::span(first_visible_).subspan(at, per_microbatch)
                                  : std::span<int32_t>()});
    }
}

std::vector<SequenceLoss> SequenceLosses::of(int64_t count, const Fill& fill) {
    const int64_t per_step = int64_t{shape_.microbatches} * shape_.mesh.data;
    const int64_t all = (count + shape_.micro_batch_size - 1) / shape_.micro_batch_size;
    std::vector<SequenceLoss> mine;
    for (int64_t first = 0; first < all; first += per_step) {
        world_.agree([&] { load(first, count, fill); });
        run(mine);
    }
    const auto by_rank = world_.all_gather(std::as_bytes(std::span(mine)));
    std::vector<SequenceLoss> losses(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
        const int64_t microbatch = i / shape_.micro_batch_size;
        const auto replica = static_cast<int>(microbatch % shape_.mesh.data);
        const int64_t at =
            microbatch / shape_.mesh.data * shape_.micro_batch_size + i % shape_.micro_batch_size;
        const int rank = shape_.mesh.world_rank(shape_.loss_rank, replica);
        std::memcpy(&losses[static_cast<size_t>(i)],
                    by_rank[static_cast<size_t>(rank)].data() +
                        static_cast<size_t>(at) * sizeof(SequenceLoss),
                    sizeof(SequenceLoss));
    }
    return losses;
}

void SequenceLosses::load(int64_t first_microbatch, int64_t count, const Fill& fill) {
    const int replica = shape_.mesh.replica(world_.rank());
    const auto length = static_cast<size_t>(shape_.seq_length);
    for (int64_t row = 0; row < std::ssize(sums_); ++row) {
        const auto row_of = [&](std::vector<int32_t>& all, int32_t value) {
            if (all.empty()) return std::span<int32_t>();
            const auto part = std::span(all).subspan(static_cast<size_t>(row) * length, length);
            std::fill(part.begin(), part.end(), value);
            return part;
        };
        const SequenceRow empty{.tokens = row_of(tokens_, 0),
                                .labels = row_of(labels_, -1),
                                .first_visible = row_of(first_visible_, 0)};
        const int64_t microbatch =
            first_microbatch + row / shape_.micro_batch_size * shape_.mesh.data + replica;
        const int64_t sequence =
            microbatch * shape_.micro_batch_size + row % shape_.micro_batch_size;
        if (sequence < count) fill(sequence, empty);
    }
    std::transform(labels_.begin(), labels_.end(), counted_.begin(),
                   [](int32_t label) { return label >= 0 ? 1.0F : 0.0F; });
}

void SequenceLosses::run(std::vector<SequenceLoss>& mine) {
    if (output_ != nullptr) output_->evaluate_sequences(shape_.micro_batch_size);
    rank_.run(microbatches_, plan_);
    if (output_ != nullptr) output_->evaluate_sequences(0);
    if (shape_.mesh.pipeline_rank(world_.rank()) != shape_.loss_rank) return;
    if (output_->losses().size() != sums_.size()) {
        throw UsageError(
            "evaluation: the output layer does not provide losses by sequence; implement "
            "OutputLayer::evaluate_sequences()");
    }
    rank_.device().download(reinterpret_cast<const std::byte*>(output_->losses().data()),
                            std::as_writable_bytes(std::span(sums_)));
    const auto length = static_cast<std::ptrdiff_t>(shape_.seq_length);
    for (size_t row = 0; row < sums_.size(); ++row) {
        const auto labels = labels_.begin() + static_cast<std::ptrdiff_t>(row) * length;
        mine.push_back({.sum = sums_[row],
                        .tokens = std::count_if(labels, labels + length,
                                                [](int32_t label) { return label >= 0; })});
    }
}

}  // namespace vocabpipe
