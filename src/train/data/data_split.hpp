// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// What a part of the data is for.
enum class DataSplit : uint8_t { train, valid, test };

inline constexpr std::array kDataSplits{DataSplit::train, DataSplit::valid, DataSplit::test};

/// "train", "valid" or "test".
[[nodiscard]] std::string_view to_string(DataSplit split);

/// The shares of train, valid and test: Megatron's --split. Parts do not overlap.
class SplitProportions {
public:
    /// Everything is for training.
    SplitProportions() = default;

    /// One to three numbers that are not negative, such as "969,30,1"; only their ratios matter.
    /// UsageError otherwise.
    explicit SplitProportions(const std::string& text);

    [[nodiscard]] double operator[](DataSplit split) const {
        return fractions_[static_cast<size_t>(split)];
    }

    /// [begin, end) of `split` among `count` things, rounded as Megatron does.
    struct Range {
        int64_t begin = 0, end = 0;
    };
    [[nodiscard]] Range range(DataSplit split, int64_t count) const;

private:
    std::array<double, 3> fractions_{1, 0, 0};
};

/// Message for a part that is empty but must not be, with a remedy.
[[nodiscard]] std::string empty_part(const TokenSourceInfo& whole, DataSplit split);

/// The part of `whole` for `split`: whole documents where the format knows documents, else tokens.
/// May be empty.
[[nodiscard]] std::shared_ptr<const TokenSource> cut_split(std::shared_ptr<const TokenSource> whole,
                                                           const SplitProportions& proportions,
                                                           DataSplit split);

}  // namespace vocabpipe
