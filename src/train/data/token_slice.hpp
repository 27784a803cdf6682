// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// The tokens [begin, end) of another source, as a source; nothing is copied.
class TokenSlice final : public TokenSource {
public:
    /// `part` names the slice for people and is appended to the source's name. `documents`: number
    /// of documents in it, -1 if the format does not say; `first_document`: the document of the
    /// whole that begins at `begin`.
    TokenSlice(std::shared_ptr<const TokenSource> whole, int64_t begin, int64_t end,
               const std::string& part, int64_t documents = -1, int64_t first_document = 0);

    [[nodiscard]] int64_t size() const override { return size_; }
    void read(int64_t first, std::span<int32_t> out) const override;
    [[nodiscard]] TokenPlace place(int64_t index) const override;
    void read_loss_weights(int64_t first, std::span<float> out) const override;
    void read_document_starts(int64_t first, std::span<int64_t> out) const override;
    [[nodiscard]] const TokenSourceInfo& info() const override { return info_; }

private:
    std::shared_ptr<const TokenSource> whole_;
    int64_t begin_, size_, first_document_;
    TokenSourceInfo info_;
};

}  // namespace vocabpipe
