// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/support/partial_file.hpp"
#include "src/train/data/loss_weights_format.hpp"

namespace vocabpipe {

/// How far a file is written; made by LossWeightsWriter::sync(), and where another writer goes on.
struct LossWeightsPosition {
    int64_t count = 0;      ///< weights
    int64_t bytes = 0;      ///< of the partial file
    uint32_t checksum = 0;  ///< of the weights' bytes
};

/// Writes a file of loss weights. It appears complete or not at all; until then it is PATH.partial.
/// Failures are OutputFileErrors.
class LossWeightsWriter {
public:
    /// Goes on at `from`, which needs the partial file of the writer that made it.
    LossWeightsWriter(const std::string& path, LossWeightType type,
                      const LossWeightsPosition& from = {});

    /// Appends the weights of the next tokens, rounded to the nearest half for fp16.
    /// std::invalid_argument for a weight that is negative, not finite, or that the type does not
    /// hold: for u8 anything but 0, 1, ..., 255, for fp16 above 65504.
    void append(std::span<const float> weights);

    /// Makes everything so far durable.
    [[nodiscard]] LossWeightsPosition sync();
    /// Writes the tail and makes the file durable; write nothing afterwards.
    void finish();
    /// Gives the finished file its name.
    void publish() { file_.publish(); }

    [[nodiscard]] const std::string& path() const { return file_.path(); }
    /// Bytes written so far.
    [[nodiscard]] int64_t bytes() const { return file_.size(); }

private:
    PartialFile file_;
    LossWeightType type_;
    loss_weights::Tail tail_;
    std::vector<std::byte> stored_;  ///< scratch
};

/// Removes the file of loss weights at `path`: one that is no file of loss weights stays.
void remove_loss_weights(const std::string& path);

}  // namespace vocabpipe
