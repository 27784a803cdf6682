// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/step_batch.hpp"

#include "vocabpipe/context_cut.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

namespace vocabpipe {

StepBatch::StepBatch(const SampleSource& samples, const StepBatchOptions& options)
    : samples_(samples),
      options_(options),
      weighs_labels_(samples.form().weighs_labels),
      rows_(samples.form(), ContextCut(samples.seq_length(), options.context_rank, options.context),
            options.micro_batch_size, options.later),
      sample_(samples.seq_length()) {}

double StepBatch::count_labels() {
    double weight = 0;
    for (size_t i = 0; i < sample_.labels.size(); ++i) {
        if (sample_.labels[i] < 0 || !(sample_.loss_weights[i] > 0)) continue;
        weight += static_cast<double>(sample_.loss_weights[i]);
        ++counted_tokens_;
    }
    return weight;
}

void StepBatch::arrange(int64_t first_sample, int microbatches) {
    const int64_t per_microbatch = options_.micro_batch_size * options_.replicas;
    const int64_t count = per_microbatch * microbatches;
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < count; ++i) lengths.push_back(samples_.length(first_sample + i));
    tokens_ = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    std::vector<int> order(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    if (options_.arrange) order = options_.arrange(lengths, per_microbatch);
    const auto refuse = [&](const std::string& what) {
        throw UsageError("StepBatchOptions::arrange: must return each of the step's " +
                         std::to_string(lengths.size()) + " samples once, but " + what);
    };
    if (order.size() != lengths.size()) refuse("returned " + std::to_string(order.size()));
    places_.assign(lengths.size(), -1);
    for (size_t place = 0; place < order.size(); ++place) {
        const auto sample = static_cast<size_t>(order[place]);
        if (sample >= places_.size() || places_[sample] >= 0) {
            refuse("returned sample " + std::to_string(order[place]) + " at place " +
                   std::to_string(place));
        }
        places_[sample] = static_cast<int64_t>(place);
    }
    seq_lengths_.assign(static_cast<size_t>(microbatches), 0);
    for (size_t sample = 0; sample < lengths.size(); ++sample) {
        int64_t& longest = seq_lengths_[static_cast<size_t>(places_[sample] / per_microbatch)];
        longest = std::max(longest, lengths[sample]);
    }
}

StepBatch::Place StepBatch::place_of(int64_t sample) const {
    const int64_t place = places_[static_cast<size_t>(sample)];
    const int64_t of_step = place / options_.micro_batch_size;
    return {.replica = static_cast<int>(of_step % options_.replicas),
            .microbatch = of_step / options_.replicas,
            .sequence = place % options_.micro_batch_size};
}

void StepBatch::load(int64_t first_sample, int microbatches) {
    arrange(first_sample, microbatches);
    rows_.resize(seq_lengths_);
    counted_tokens_ = 0;
    weight_ = 0;  // added up sample by sample, so that it depends on neither m nor d
    std::vector<double> of_microbatch(static_cast<size_t>(microbatches));
    for (size_t i = 0; i < places_.size(); ++i) {
        const int64_t sample = first_sample + static_cast<int64_t>(i);
        const Place place = place_of(static_cast<int64_t>(i));
        const bool own = place.replica == options_.replica;
        if (!own && !weighs_labels_) {
            counted_tokens_ += samples_.length(sample);
            weight_ += static_cast<double>(samples_.length(sample));
            continue;
        }
        sample_.resize(samples_.length(sample));
        samples_.sample(sample, sample_);
        const double weight = count_labels();
        weight_ += weight;
        if (!own) continue;
        const auto j = static_cast<size_t>(place.microbatch);
        of_microbatch[j] += weight;
        sample_.pad(seq_lengths_[j]);
        rows_.put(place.microbatch * options_.micro_batch_size + place.sequence, sample_);
    }
    const float g = counted_tokens_ == 0 ? 0.0F : 1.0F / static_cast<float>(weight_);
    for (float& gradient : rows_.loss_gradients()) gradient *= g;
    if (options_.context == 1) return;  // a microbatch has the tokens that its weight counts
    for (size_t j = 0; j < of_microbatch.size(); ++j) {
        rows_.microbatches()[j].loss_weight = of_microbatch[j] * double{g};
    }
}

}  // namespace vocabpipe
