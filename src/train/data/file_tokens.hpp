// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/train/data/data_file.hpp"
#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// Tokens of one type in one or more files; every supported format is opened as this. Move-only.
class FileTokens final : public TokenSource {
public:
    explicit FileTokens(TokenSourceInfo info) : info_(std::move(info)) {}

    /// Appends `count` tokens of info().type that start `offset` bytes into `file`; the range must
    /// lie in the file.
    void append(DataFile file, uint64_t offset, int64_t count);

    [[nodiscard]] int64_t size() const override { return size_; }
    void read(int64_t first, std::span<int32_t> out) const override;
    [[nodiscard]] TokenPlace place(int64_t index) const override;
    [[nodiscard]] const TokenSourceInfo& info() const override { return info_; }

private:
    struct Segment {
        DataFile file;
        uint64_t offset;       // bytes, of the first token
        int64_t first, count;  // tokens
    };
    [[nodiscard]] size_t segment_of(int64_t index) const;
    /// From token `skip` of the segment on.
    void read_segment(const Segment& segment, int64_t skip, std::span<int32_t> out) const;

    TokenSourceInfo info_;
    std::vector<Segment> segments_;  // none is empty
    int64_t size_ = 0;
};

}  // namespace vocabpipe
