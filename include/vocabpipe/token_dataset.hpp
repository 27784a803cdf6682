// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "vocabpipe/sample_order.hpp"
#include "vocabpipe/sample_source.hpp"
#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// How samples are cut and ordered.
struct TokenDatasetOptions {
    int64_t seq_length = 0;  ///< tokens of a sample
    uint64_t seed = 1234;    ///< of the order; Megatron's default
    bool shuffle = true;     ///< false: stream order, for evaluation
    /// sample() throws InputFileError for ids >= vocab_size; 0: not checked. Checked again here
    /// because files may be overwritten after check_tokens().
    int64_t vocab_size = 0;
};

/// Training samples of a token stream. The stream is cut at stride seq_length; a sample has one
/// token more than that, so inputs are its first and labels its last seq_length tokens. Tokens
/// behind the last full sample are left out.
class TokenDataset final : public SampleSource {
public:
    /// InputFileError if the stream is too short for one sample, UsageError if seq_length < 1.
    TokenDataset(std::shared_ptr<const TokenSource> source, const TokenDatasetOptions& options);

    [[nodiscard]] int64_t samples_per_epoch() const override { return samples_; }
    [[nodiscard]] int64_t seq_length() const override { return options_.seq_length; }
    /// The stream it was made from.
    [[nodiscard]] const TokenSource& source() const { return *source_; }

    void sample(int64_t index, std::span<int32_t> tokens_and_next) const override;

private:
    [[noreturn]] void fail(int64_t token, int32_t value) const;

    std::shared_ptr<const TokenSource> source_;
    TokenDatasetOptions options_;
    int64_t samples_;
    SampleOrder order_;
};

}  // namespace vocabpipe
