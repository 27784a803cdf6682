// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "vocabpipe/token_source.hpp"

namespace vocabpipe::testing {

/// Tokens in memory.
class VectorSource final : public TokenSource {
public:
    explicit VectorSource(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {
        info_.name = "memory";
    }
    [[nodiscard]] int64_t size() const override { return static_cast<int64_t>(tokens_.size()); }
    void read(int64_t first, std::span<int32_t> out) const override {
        if (first < 0 || first > size() || std::cmp_greater(out.size(), size() - first)) {
            throw std::out_of_range("VectorSource");
        }
        std::copy_n(tokens_.begin() + first, out.size(), out.begin());
    }
    [[nodiscard]] TokenPlace place(int64_t index) const override { return {"memory", index}; }
    [[nodiscard]] const TokenSourceInfo& info() const override { return info_; }

private:
    std::vector<int32_t> tokens_;
    TokenSourceInfo info_;
};

}  // namespace vocabpipe::testing
