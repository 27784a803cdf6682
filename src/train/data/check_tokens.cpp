// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/check_tokens.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "src/train/data/spaced_blocks.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

struct Scan {
    TokenRange range;
    int64_t first_bad = -1;  // index in the stream
    int32_t bad_value = 0;
};

Scan scan(const TokenSource& source, int64_t vocab_size, int64_t most) {
    std::vector<int32_t> block(static_cast<size_t>(std::min(SpacedBlocks::kBlock, source.size())));
    Scan result;
    int32_t low = std::numeric_limits<int32_t>::max();
    int32_t high = std::numeric_limits<int32_t>::min();
    const SpacedBlocks blocks(source.size(), most);
    for (int64_t i = 0; i < blocks.count(); ++i) {
        const int64_t first = blocks.first(i);
        const std::span<int32_t> part =
            std::span(block).first(static_cast<size_t>(blocks.length(i)));
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
