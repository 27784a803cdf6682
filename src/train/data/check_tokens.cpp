// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/check_tokens.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr int64_t kBlock = 1 << 15;  // tokens; 128 KiB as int32 stay in the cache

struct Scan {
    TokenRange range;
    int64_t first_bad = -1;  // index in the stream
    int32_t bad_value = 0;
};

/// The blocks to read of a stream.
class Blocks {
public:
    Blocks(int64_t size, int64_t most) : size_(size), count_(std::max(most / kBlock, int64_t{2})) {
        // Streams of a few blocks are read whole.
        if (size > most && size > count_ * kBlock) {
            stride_ = (size - kBlock) / (count_ - 1);
        } else {
            count_ = (size + kBlock - 1) / kBlock;
        }
    }
    [[nodiscard]] int64_t count() const { return count_; }
    /// The first token of a block; the last one of several that are apart ends with the stream.
    [[nodiscard]] int64_t first(int64_t block) const {
        const bool ends = stride_ > kBlock && block + 1 == count_;
        return ends ? size_ - kBlock : block * stride_;
    }

private:
    int64_t size_, count_;
    int64_t stride_ = kBlock;
};

Scan scan(const TokenSource& source, int64_t vocab_size, int64_t most) {
    std::vector<int32_t> block(static_cast<size_t>(std::min(kBlock, source.size())));
    Scan result;
    int32_t low = std::numeric_limits<int32_t>::max();
    int32_t high = std::numeric_limits<int32_t>::min();
    const Blocks blocks(source.size(), most);
    for (int64_t i = 0; i < blocks.count(); ++i) {
        const int64_t first = blocks.first(i);
        const std::span<int32_t> part =
            std::span(block).first(static_cast<size_t>(std::min(kBlock, source.size() - first)));
        result.range.read += static_cast<int64_t>(part.size());
        source.read(first, part);
        int32_t block_low = part[0];
        int32_t block_high = part[0];
        for (const int32_t id : part) {
            block_low = std::min(block_low, id);
            block_high = std::max(block_high, id);
        }
        if (result.first_bad < 0 && (block_low < 0 || block_high >= vocab_size)) {
            const auto bad = std::find_if(part.begin(), part.end(), [vocab_size](int32_t id) {
                return id < 0 || id >= vocab_size;
            });
            result.first_bad = first + (bad - part.begin());
            result.bad_value = *bad;
        }
        low = std::min(low, block_low);
        high = std::max(high, block_high);
    }
    if (source.size() > 0) {
        result.range.min = low;
        result.range.max = high;
    }
    return result;
}

}  // namespace

TokenRange token_range(const TokenSource& source, int64_t most) {
    return scan(source, std::numeric_limits<int64_t>::max(), most).range;
}

TokenRange check_tokens(const TokenSource& source, int64_t vocab_size, int64_t most) {
    if (vocab_size <= 0) {
        throw UsageError("--vocab-size " + std::to_string(vocab_size) + ": must be at least 1");
    }
    const Scan result = scan(source, vocab_size, most);
    if (result.first_bad < 0) {
        return result.range;
    }
    const TokenPlace place = source.place(result.first_bad);
    const std::string what = place.file + ": token " + std::to_string(place.position) + " is " +
                             std::to_string(result.bad_value) + ", but --vocab-size " +
                             std::to_string(vocab_size) + " allows only 0 to " +
                             std::to_string(vocab_size - 1);
    if (result.range.min < 0) {
        throw InputFileError(
            what +
            "; negative values are not token ids; the file is damaged or has another token type");
    }
    throw InputFileError(what + "; the data needs --vocab-size " +
                         std::to_string(int64_t{result.range.max} + 1) +
                         " or more, or another vocabulary");
}

}  // namespace vocabpipe
