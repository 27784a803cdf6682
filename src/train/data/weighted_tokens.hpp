// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "src/train/data/loss_weights_file.hpp"
#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// Another source together with the file of its loss weights.
class WeightedTokens final : public TokenSource {
public:
    /// InputFileError for the file at `path` as LossWeightsFile, or for another number of weights.
    WeightedTokens(std::unique_ptr<TokenSource> tokens, const std::string& path)
        : tokens_(std::move(tokens)), weights_(path), info_(tokens_->info()) {
        weights_.require_size(size());
        info_.loss_weights = path;
        info_.bytes += weights_.bytes();
    }

    [[nodiscard]] int64_t size() const override { return tokens_->size(); }
    void read(int64_t first, std::span<int32_t> out) const override { tokens_->read(first, out); }
    void read_loss_weights(int64_t first, std::span<float> out) const override {
        weights_.read(first, out);
    }
    void read_document_starts(int64_t first, std::span<int64_t> out) const override {
        tokens_->read_document_starts(first, out);
    }
    [[nodiscard]] TokenPlace place(int64_t index) const override { return tokens_->place(index); }
    [[nodiscard]] const TokenSourceInfo& info() const override { return info_; }

private:
    std::unique_ptr<TokenSource> tokens_;
    LossWeightsFile weights_;
    TokenSourceInfo info_;
};

}  // namespace vocabpipe
