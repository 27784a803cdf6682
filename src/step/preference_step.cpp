// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/preference_step.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/policy_loss.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

void check(const StepBatch& batch) {
    if (batch.global_batch_size() % 2 != 0) {
        throw UsageError("a step has " + std::to_string(batch.global_batch_size()) +
                         " samples, but they are pairs; use an even batch size");
    }
    for (const Microbatch& microbatch : batch.microbatches()) {
        if (std::ssize(microbatch.columns) == microbatch.size()) continue;
        throw UsageError("microbatch " + std::to_string(microbatch.index) + " has " +
                         std::to_string(microbatch.columns.size()) + " numbers for " +
                         std::to_string(microbatch.size()) +
                         " tokens; its one column must be the reference's log-probabilities");
    }
}

}  // namespace

std::vector<double> PreferenceStep::rewards(const StepBatch& batch,
                                            std::span<const float> logprobs) {
    std::vector<double> mine;  // sequence by sequence
    for (const Microbatch& m : batch.microbatches()) {
        for (int64_t sequence = 0; sequence < m.sequences; ++sequence) {
            double sum = 0;
            for (int64_t n = sequence * m.seq_length; n < (sequence + 1) * m.seq_length; ++n) {
                const auto i = static_cast<size_t>(n);
                if (m.labels[i] < 0 || m.loss_gradient[i] == 0) continue;
                const double weight = double{m.loss_gradient[i]} * batch.weight();
                sum += weight * (double{logprobs[i]} - double{m.columns[i]});
            }
            mine.push_back(sum);
        }
        logprobs = logprobs.subspan(static_cast<size_t>(m.size()));
    }
    const std::vector<std::vector<std::byte>> by_rank =
        rank_.communicator().all_gather(std::as_bytes(std::span(mine)));
    const Mesh& mesh = rank_.model().mesh();
    const int64_t sequences = batch.microbatches().front().sequences;
    std::vector<double> all(static_cast<size_t>(batch.global_batch_size()));
    std::set<std::pair<int, int>> added;  // replica and context rank
    for (int rank = 0; rank < std::ssize(by_rank); ++rank) {
        const int replica = mesh.replica(rank);
        if (!added.emplace(replica, mesh.place(rank).context).second) continue;
        const auto& bytes = by_rank[static_cast<size_t>(rank)];
        const std::span<const double> found(reinterpret_cast<const double*>(bytes.data()),
                                            bytes.size() / sizeof(double));
        for (size_t sample = 0; sample < all.size(); ++sample) {
            const StepBatch::Place at = batch.place_of(static_cast<int64_t>(sample));
            if (at.replica != replica) continue;
            all[sample] += found[static_cast<size_t>(at.microbatch * sequences + at.sequence)];
        }
    }
    return all;
}

void PreferenceStep::run(const StepBatch& batch, size_t forward) {
    check(batch);
    rank_.executor().set_step(rank_.position().step + 1);
    rank_.run(batch.microbatches(), forward);
    const std::vector<float> logprobs = rank_.records(TokenRecord::logprob);
    const std::vector<double> reward = rewards(batch, logprobs);

    means_ = {};
    const auto pairs = static_cast<double>(reward.size() / 2);
    // A PolicyLoss adds g times minus the advantage to the slope, g = weight / sum of all weights.
    const double scale = batch.weight() / pairs;
    std::vector<float> advantages(reward.size());
    for (size_t chosen = 0; chosen < reward.size(); chosen += 2) {
        const size_t rejected = chosen + 1;
        const PreferenceLoss found =
            preference_loss({.chosen = reward[chosen], .rejected = reward[rejected]}, beta_);
        advantages[chosen] = static_cast<float>(found.advantage * scale);
        advantages[rejected] = -advantages[chosen];
        means_.loss += found.loss / pairs;
        means_.chosen_reward += beta_ * reward[chosen] / pairs;
        means_.rejected_reward += beta_ * reward[rejected] / pairs;
        if (reward[chosen] > reward[rejected]) means_.accuracy += 1 / pairs;
    }

    microbatches_.assign(batch.microbatches().begin(), batch.microbatches().end());
    columns_.resize(microbatches_.size());
    auto next = logprobs.begin();
    for (size_t j = 0; j < microbatches_.size(); ++j) {
        const auto tokens = static_cast<size_t>(microbatches_[j].size());
        columns_[j].assign(2 * tokens, 0);
        std::copy_n(next, tokens, columns_[j].begin() + static_cast<std::ptrdiff_t>(tokens));
        next += static_cast<std::ptrdiff_t>(tokens);
        microbatches_[j].columns = columns_[j];
    }
    const int replica = rank_.model().mesh().replica(rank_.communicator().rank());
    for (size_t sample = 0; sample < reward.size(); ++sample) {
        const StepBatch::Place at = batch.place_of(static_cast<int64_t>(sample));
        if (at.replica != replica) continue;
        const auto j = static_cast<size_t>(at.microbatch);
        const int64_t length = microbatches_[j].seq_length;
        std::fill_n(columns_[j].begin() + at.sequence * length, length, advantages[sample]);
    }
}

}  // namespace vocabpipe
