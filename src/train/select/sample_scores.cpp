// SPDX-License-Identifier: Apache-2.0
#include "src/train/select/sample_scores.hpp"

#include "src/model/sequence_output.hpp"
#include "src/select/files/fixed_point.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace vocabpipe {

namespace {

constexpr std::array<std::string_view, 3> kUtilityNames{"margin", "loss", "perplexity"};
constexpr TokenRecords kRecords{TokenRecord::loss, TokenRecord::margin};

}  // namespace

std::string_view to_string(UtilityKind kind) {
    return kUtilityNames[static_cast<size_t>(kind)];
}

UtilityKind utility_kind_from(std::string_view name) {
    const auto found = std::ranges::find(kUtilityNames, name);
    if (found == kUtilityNames.end()) {
        throw UsageError("--utility " + std::string(name) + ": use margin, loss or perplexity");
    }
    return static_cast<UtilityKind>(found - kUtilityNames.begin());
}

int32_t utility_of(UtilityKind kind, const SampleSums& sums) {
    if (sums.weight == 0) return 0;
    switch (kind) {
        case UtilityKind::margin:
            return to_fixed_point(1 - sums.margin / sums.weight);
        case UtilityKind::loss:
            return to_fixed_point(sums.loss / sums.weight);
        case UtilityKind::perplexity:
            break;
    }
    return to_fixed_point(std::exp(sums.loss / sums.weight));
}

SampleScores::SampleScores(TrainedRank& rank, const EvaluationShape& shape)
    : rank_(rank),
      shape_(shape),
      replica_(shape.mesh.replica(rank.communicator().rank())),
      batch_(shape, rank.communicator().rank()) {}

void SampleScores::load(int64_t first, int64_t count, const FillSequence& fill) {
    first_ = first;
    batch_.load(first, count, fill);
}

bool SampleScores::has_results() const {
    return shape_.mesh.pipeline_rank(rank_.communicator().rank()) == shape_.loss_rank;
}

int64_t SampleScores::sample(int64_t row) const {
    return shape_.sequence_of(first_, row, replica_);
}

void SampleScores::run() {
    SequenceOutput* const output = sequence_output(rank_.output());
    if (output != nullptr) output->evaluate_next_step(shape_.micro_batch_size);
    rank_.run(batch_.microbatches());
    if (!has_results()) return;
    const auto samples = static_cast<size_t>(shape_.sequences_per_replica());
    const std::span<const double> losses = rank_.output()->losses();
    const ConstTensor records = rank_.output()->records();
    if (output == nullptr || records.rows != kRecords.size() * shape_.microbatches ||
        losses.size() != samples || output->hidden_sums().empty()) {
        throw UsageError(
            "scoring: the output layer does not provide margins and hidden states by sequence; "
            "set StepWork::records and hidden_sums, and implement SequenceOutput");
    }
    const auto download = [&](auto from, auto& to) {
        to.resize(from.size());
        rank_.device().download(reinterpret_cast<const std::byte*>(from.data()),
                                std::as_writable_bytes(std::span(to)));
    };
    download(losses, losses_);
    download(std::span(records.as<float>(), static_cast<size_t>(records.size())), records_);
    download(output->hidden_sums(), hidden_sums_);
}

SampleSums SampleScores::sums(int64_t row) const {
    // Row of a microbatch's margins, and within it the sample's tokens.
    const int64_t of_microbatch = row / shape_.micro_batch_size * kRecords.size();
    const int64_t margins = of_microbatch + kRecords.index_of(TokenRecord::margin);
    const int64_t sample = margins * shape_.micro_batch_size + row % shape_.micro_batch_size;
    const float* const margin = records_.data() + sample * shape_.seq_length;
    SampleSums sums{.loss = losses_[static_cast<size_t>(row)], .weight = batch_.labels(row).weight};
    const std::span<const float> weights = batch_.weights(row);
    for (size_t n = 0; n < weights.size(); ++n) {
        sums.margin += static_cast<double>(weights[n]) * static_cast<double>(margin[n]);
    }
    return sums;
}

void SampleScores::hidden_mean(int64_t row, std::span<float> to) const {
    const size_t begin =
        static_cast<size_t>(row) * static_cast<size_t>(SequenceOutput::kSumRows) * to.size();
    const auto tokens = static_cast<float>(shape_.seq_length);
    for (size_t i = 0; i < to.size(); ++i) to[i] = hidden_sums_[begin + i] / tokens;
}

}  // namespace vocabpipe
