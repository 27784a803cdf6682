// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace vocabpipe {

/// The blocks to read of a stream: all of it, or if it has more than `most` elements, evenly spaced
/// blocks of them, at least the first and the last.
class SpacedBlocks {
public:
    static constexpr int64_t kBlock = 1 << 15;  ///< elements; 128 KiB as int32 stay in the cache

    SpacedBlocks(int64_t size, int64_t most)
        : size_(size), count_(std::max(most / kBlock, int64_t{2})) {
        all_ = size <= most || size <= count_ * kBlock;  // streams of a few blocks are read whole
        if (all_) {
            count_ = (size + kBlock - 1) / kBlock;
        } else {
            stride_ = (size - kBlock) / (count_ - 1);
        }
    }
    [[nodiscard]] int64_t count() const { return count_; }
    /// Whether they are the whole stream.
    [[nodiscard]] bool all() const { return all_; }
    /// The first element of a block; the last one of several that are apart ends with the stream.
    [[nodiscard]] int64_t first(int64_t block) const {
        return !all_ && block + 1 == count_ ? size_ - kBlock : block * stride_;
    }
    /// Elements of a block.
    [[nodiscard]] int64_t length(int64_t block) const {
        return std::min(kBlock, size_ - first(block));
    }

private:
    int64_t size_, count_;
    int64_t stride_ = kBlock;
    bool all_ = true;
};

}  // namespace vocabpipe
