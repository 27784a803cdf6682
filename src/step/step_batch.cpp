// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/step_batch.hpp"

#include "vocabpipe/context_cut.hpp"

#include <cstddef>
#include <vector>

namespace vocabpipe {

StepBatch::StepBatch(const SampleSource& samples, const StepBatchOptions& options)
    : samples_(samples),
      options_(options),
      weighs_labels_(samples.form().weighs_labels),
      rows_(samples.form(), ContextCut(samples.seq_length(), options.context_rank, options.context),
            options.micro_batch_size),
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

void StepBatch::load(int64_t first_sample, int microbatches) {
    rows_.resize(microbatches);
    counted_tokens_ = 0;
    double of_step = 0;  // added up sample by sample, so that it depends on neither m nor d
    std::vector<double> of_microbatch(static_cast<size_t>(microbatches));
    int64_t next = first_sample;
    for (int j = 0; j < microbatches; ++j) {
        for (int replica = 0; replica < options_.replicas; ++replica) {
            const bool own = replica == options_.replica;
            for (int64_t row = 0; row < options_.micro_batch_size; ++row, ++next) {
                if (!own && !weighs_labels_) {
                    counted_tokens_ += samples_.seq_length();
                    of_step += static_cast<double>(samples_.seq_length());
                    continue;
                }
                samples_.sample(next, sample_);
                const double weight = count_labels();
                of_step += weight;
                if (!own) continue;
                of_microbatch[static_cast<size_t>(j)] += weight;
                rows_.put(j * options_.micro_batch_size + row, sample_);
            }
        }
    }
    const float g = counted_tokens_ == 0 ? 0.0F : 1.0F / static_cast<float>(of_step);
    for (float& gradient : rows_.loss_gradients()) gradient *= g;
    if (options_.context == 1) return;  // a microbatch has the tokens that its weight counts
    for (size_t j = 0; j < of_microbatch.size(); ++j) {
        rows_.microbatches()[j].loss_weight = of_microbatch[j] * double{g};
    }
}

}  // namespace vocabpipe
