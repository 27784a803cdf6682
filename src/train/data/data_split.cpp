// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/data_split.hpp"

#include <cmath>
#include <numeric>
#include <utility>

#include "src/support/parse_number.hpp"
#include "src/support/split_text.hpp"
#include "src/train/data/token_slice.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

std::string_view to_string(DataSplit split) {
    switch (split) {
        case DataSplit::train:
            return "train";
        case DataSplit::valid:
            return "valid";
        case DataSplit::test:
            return "test";
    }
    return "unknown";
}

namespace {

/// Removes the quotes of "--split '99,1,0'" that a script leaves if it keeps flags in a bash array.
std::string without_quotes(const std::string& text) {
    const bool quoted = text.size() > 1 && text.front() == text.back() &&
                        (text.front() == '\'' || text.front() == '"');
    return quoted ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

SplitProportions::SplitProportions(const std::string& given) : fractions_{} {
    const std::string text = without_quotes(given);
    const auto fail = [&](const std::string& reason) {
        throw UsageError(
            "--split " + given + ": " + reason +
            "; use the proportions of training, validation and test data, such as 969,30,1");
    };
    size_t count = 0;
    for (const std::string_view part : split_text(text)) {
        std::string word(part);
        word.erase(0, std::min(word.find_first_not_of(' '), word.size()));
        const auto number = parse_number<double>(word);
        if (!number || *number < 0) fail("'" + word + "' is not a number of at least 0");
        if (count == fractions_.size()) fail("has more than three numbers");
        fractions_[count++] = *number;
    }
    const double sum = std::accumulate(fractions_.begin(), fractions_.end(), 0.0);
    if (!(sum > 0) || !std::isfinite(sum))
        fail("the sum must be finite and above 0, got " + std::to_string(sum));
    for (double& fraction : fractions_) fraction /= sum;
}

SplitProportions::Range SplitProportions::range(DataSplit split, int64_t count) const {
    std::array<double, 4> bounds{};
    std::partial_sum(fractions_.begin(), fractions_.end(), bounds.begin() + 1);
    // Rounds to even, as Python's round(). The sum of the fractions may miss 1 in its last bit.
    const auto place = [&](size_t bound) {
        return std::min(count, static_cast<int64_t>(
                                   std::nearbyint(bounds[bound] * static_cast<double>(count))));
    };
    const auto part = static_cast<size_t>(split);
    return {place(part), place(part + 1)};
}

std::string empty_part(const TokenSourceInfo& whole, DataSplit split) {
    const std::string name(to_string(split));
    std::string text = "the " + name + " part is empty";
    if (whole.documents >= 0) {
        text += "; --split divides whole documents, and there " +
                (whole.documents == 1 ? "is 1" : "are " + std::to_string(whole.documents)) +
                "; split the text into more documents (data prepare --document-separator "
                "blank-lines or line)";
    } else {
        text += "; use more data";
    }
    return text + ", or set --" + name + "-data-path instead of --split";
}

std::shared_ptr<const TokenSource> cut_split(std::shared_ptr<const TokenSource> whole,
                                             const SplitProportions& proportions, DataSplit split) {
    const int64_t documents = whole->info().documents;
    if (documents < 0) {
        const auto tokens = proportions.range(split, whole->size());
        return std::make_shared<TokenSlice>(std::move(whole), tokens.begin, tokens.end,
                                            std::string(to_string(split)));
    }
    const auto part = proportions.range(split, documents);
    const int64_t begin = whole->document_start(part.begin);
    const int64_t end = whole->document_start(part.end);
    return std::make_shared<TokenSlice>(std::move(whole), begin, end, std::string(to_string(split)),
                                        part.end - part.begin, part.begin);
}

}  // namespace vocabpipe
