// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "vocabpipe/length_count.hpp"

namespace vocabpipe {

/// What choose_length_buckets() may choose from.
struct LengthBucketOptions {
    int64_t seq_length = 0;  ///< the longest length, which is always a bucket
    /// Lengths below it are multiples of this: at 64 the blocks of attention are whole.
    int64_t multiple = 64;
    /// With more buckets documents are padded less, but the sequences of a microbatch have one
    /// length, so that more of them are padded up to the next bucket.
    int most = 4;
};

/// Lengths of sequences, ascending, for which padding every document to the smallest length that
/// holds it costs least: the sum over documents of `cost` of that length, exact by dynamic
/// programming over at most 256 candidates. Longer documents count as pieces of seq_length and a
/// rest. `cost` is that of a sequence of so many tokens, in any unit.
[[nodiscard]] std::vector<int64_t> choose_length_buckets(
    std::span<const LengthCount> documents, const LengthBucketOptions& options,
    const std::function<double(int64_t)>& cost);

/// Parses --length-buckets: integers from 1 to seq_length with commas between them, each once.
/// Returns them ascending, with seq_length, which must be the largest. UsageError with what is
/// wrong and a remedy.
[[nodiscard]] std::vector<int64_t> parse_length_buckets(const std::string& text,
                                                        int64_t seq_length);

}  // namespace vocabpipe
