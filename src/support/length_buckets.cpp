// SPDX-License-Identifier: Apache-2.0
#include "src/support/length_buckets.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>

#include "src/support/parse_number.hpp"
#include "src/support/split_text.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr int64_t kMostCandidates = 256;
constexpr size_t kMostBuckets = 64;

/// Multiples of `multiple` below the longest length, coarser where there would be too many, and the
/// longest.
std::vector<int64_t> candidates_of(const LengthBucketOptions& options) {
    const int64_t steps = std::max<int64_t>(options.seq_length / options.multiple, 1);
    const int64_t step = options.multiple * ((steps + kMostCandidates - 1) / kMostCandidates);
    std::vector<int64_t> lengths;
    for (int64_t length = step; length < options.seq_length; length += step) {
        lengths.push_back(length);
    }
    lengths.push_back(options.seq_length);
    return lengths;
}

/// [i] Documents, and pieces of longer ones, that need at most candidate i.
std::vector<double> documents_up_to(std::span<const LengthCount> documents,
                                    const std::vector<int64_t>& candidates) {
    std::vector<double> count(candidates.size());
    const int64_t longest = candidates.back();
    for (const LengthCount& of_length : documents) {
        const auto number = static_cast<double>(of_length.count);
        count.back() += number * static_cast<double>(of_length.length / longest);
        const int64_t rest = of_length.length % longest;
        if (rest == 0) continue;
        const auto at = std::ranges::lower_bound(candidates, rest) - candidates.begin();
        count[static_cast<size_t>(at)] += number;
    }
    std::partial_sum(count.begin(), count.end(), count.begin());
    return count;
}

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
    throw UsageError("--length-buckets " + text + ": " + why);
}

}  // namespace

std::vector<int64_t> choose_length_buckets(std::span<const LengthCount> documents,
                                           const LengthBucketOptions& options,
                                           const std::function<double(int64_t)>& cost) {
    const std::vector<int64_t> candidates = candidates_of(options);
    const std::vector<double> up_to = documents_up_to(documents, candidates);
    const size_t count = candidates.size();
    const auto most = static_cast<size_t>(options.most);
    constexpr double kNever = std::numeric_limits<double>::infinity();
    // [b][i] least cost of all documents up to candidate i, the largest of b + 1 buckets; and the
    // bucket before it, or `count`.
    std::vector<std::vector<double>> least(most, std::vector<double>(count, kNever));
    std::vector<std::vector<size_t>> before(most, std::vector<size_t>(count, count));
    std::vector<double> of(count);
    for (size_t i = 0; i < count; ++i) of[i] = cost(candidates[i]);
    for (size_t i = 0; i < count; ++i) least[0][i] = up_to[i] * of[i];
    for (size_t b = 1; b < most; ++b) {
        for (size_t i = 1; i < count; ++i) {
            for (size_t j = 0; j < i; ++j) {
                const double sum = least[b - 1][j] + (up_to[i] - up_to[j]) * of[i];
                if (sum >= least[b][i]) continue;
                least[b][i] = sum;
                before[b][i] = j;
            }
        }
    }
    size_t best = 0;  // the fewest buckets of the least cost
    for (size_t b = 1; b < most; ++b) {
        if (least[b].back() < least[best].back()) best = b;
    }
    std::vector<int64_t> buckets;
    for (size_t i = count - 1, b = best; i < count; i = before[b--][i]) {
        // A bucket without documents would be no length of any sample.
        const size_t previous = before[b][i];
        const double documents_here = up_to[i] - (previous < count ? up_to[previous] : 0);
        if (documents_here > 0 || i + 1 == count) buckets.push_back(candidates[i]);
    }
    std::ranges::reverse(buckets);
    return buckets;
}

std::vector<int64_t> parse_length_buckets(const std::string& text, int64_t seq_length) {
    std::vector<int64_t> lengths;
    for (const std::string_view word : split_text(text)) {
        const std::optional<int64_t> length = parse_flag_number<int64_t>(word);
        if (!length || *length < 1) {
            refuse(text, '"' + std::string(word) +
                             "\" is not an integer of at least 1; use auto, or lengths with commas "
                             "between them, such as 512,1024,2048");
        }
        if (*length > seq_length) {
            refuse(text, std::to_string(*length) + " is more than --seq-length " +
                             std::to_string(seq_length) + "; leave it out, or raise --seq-length");
        }
        if (std::ranges::find(lengths, *length) != lengths.end()) {
            refuse(text, "has " + std::to_string(*length) + " twice; name each length once");
        }
        lengths.push_back(*length);
    }
    std::ranges::sort(lengths);
    if (lengths.back() != seq_length) {
        refuse(text, "the largest must be --seq-length " + std::to_string(seq_length) + "; add it");
    }
    if (lengths.size() > kMostBuckets) {
        refuse(text, "has " + std::to_string(lengths.size()) + " lengths; use at most " +
                         std::to_string(kMostBuckets));
    }
    return lengths;
}

}  // namespace vocabpipe
