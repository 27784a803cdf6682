// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "vocabpipe/document_masks.hpp"
#include "vocabpipe/sample_order.hpp"
#include "vocabpipe/sample_source.hpp"
#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// How samples are cut and ordered.
struct TokenDatasetOptions {
    int64_t seq_length = 0;  ///< tokens of a sample
    uint64_t seed = 1234;    ///< of the order; Megatron's default
    bool shuffle = true;     ///< false: stream order, for evaluation
    /// sample() throws InputFileError for ids >= vocab_size; 0: not checked. Checked here
    /// because check_tokens() reads only a part of large data, and files may be overwritten later.
    int64_t vocab_size = 0;
    DocumentMasks masks = {};  ///< none
};

/// Training samples of a token stream. The stream is cut at stride seq_length; the label of a token
/// is the next one, so the last label of a sample is the first token of the next sample. Tokens
/// behind the last full sample are left out.
class TokenDataset final : public SampleSource {
public:
    /// InputFileError if the stream is too short for one sample, UsageError if seq_length < 1.
    TokenDataset(std::shared_ptr<const TokenSource> source, const TokenDatasetOptions& options);

    [[nodiscard]] int64_t samples_per_epoch() const override { return samples_; }
    [[nodiscard]] int64_t seq_length() const override { return options_.seq_length; }
    [[nodiscard]] int64_t stream_number(int64_t index) const override { return order_(index); }
    /// The stream it was made from.
    [[nodiscard]] const TokenSource& source() const { return *source_; }

    /// By the options' masks and the stream's loss weights.
    [[nodiscard]] SampleForm form() const override;

private:
    void fill(int64_t index, Sample& out) const override;

    std::shared_ptr<const TokenSource> source_;
    TokenDatasetOptions options_;
    int64_t samples_;
    SampleOrder order_;
};

}  // namespace vocabpipe
