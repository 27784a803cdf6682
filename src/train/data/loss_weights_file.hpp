// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "src/train/data/data_file.hpp"
#include "src/train/data/loss_weights_format.hpp"

namespace vocabpipe {

/// A file of loss weights, one for every token of a stream. Move-only; const functions are safe
/// from several threads.
class LossWeightsFile {
public:
    /// Opens `path` and reads its head and tail. InputFileError if it is no such file, or is
    /// incomplete.
    explicit LossWeightsFile(const std::string& path);
    /// InputFileError unless it has a weight for each of `tokens`.
    void require_size(int64_t tokens) const;

    [[nodiscard]] const std::string& path() const { return file_.path(); }
    [[nodiscard]] LossWeightType type() const { return type_; }
    /// CRC-32C of the weights' bytes; 0: the file does not say.
    [[nodiscard]] uint32_t checksum() const { return checksum_; }
    /// Bytes of the whole file.
    [[nodiscard]] int64_t bytes() const { return static_cast<int64_t>(file_.size()); }

    /// Copies the weights first, first + 1, ... to `out`; std::out_of_range outside of the stream,
    /// InputFileError for a weight that is negative or not finite.
    void read(int64_t first, std::span<float> out) const;

    /// What weights are together.
    struct Totals {
        double sum = 0;
        int64_t positive = 0;  ///< weights above 0
    };
    /// Reads the file once: all of it, and then its checksum must be right, or if it has more than
    /// `most` weights, SpacedBlocks of them. Errors as read().
    [[nodiscard]] Totals check(int64_t most = std::numeric_limits<int64_t>::max()) const;

private:
    /// Calls `use(bytes, weights)` for blocks of the weights from `first` on.
    template <typename Use>
    void each_block(int64_t first, int64_t count, const Use& use) const;

    DataFile file_;
    int64_t count_ = 0;
    LossWeightType type_ = LossWeightType::u8;
    uint32_t checksum_ = 0;
};

}  // namespace vocabpipe
