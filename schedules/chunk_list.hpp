// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass.hpp"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace vocabpipe {

/// The pass list of a rank with several stages while a rule writes it. As in RankList, every kind
/// of pass counts its own microbatches, here per chunk.
class ChunkList {
public:
    /// `stages`: global stage of every chunk.
    ChunkList(std::vector<int> stages, int microbatches)
        : stages_(std::move(stages)), microbatches_(microbatches), emitted_(stages_.size()) {}

    /// Appends the next pass of this kind; does nothing once every microbatch has had one.
    void emit(Op op, int chunk) {
        int& next = emitted_[static_cast<size_t>(chunk)][static_cast<size_t>(op)];
        if (next < microbatches_) append(op, chunk, next++);
    }
    void append(Op op, int chunk, int microbatch) {
        passes_.push_back({op, static_cast<uint16_t>(stages_[static_cast<size_t>(chunk)]),
                           static_cast<uint32_t>(microbatch)});
    }
    /// The pass written last and the next one become an overlapped pair.
    void overlap_with_next() { passes_.back().with_next = true; }

    [[nodiscard]] int emitted(Op op, int chunk) const {
        return emitted_[static_cast<size_t>(chunk)][static_cast<size_t>(op)];
    }
    [[nodiscard]] bool done(Op op, int chunk) const { return emitted(op, chunk) == microbatches_; }
    [[nodiscard]] std::vector<Pass> take() && { return std::move(passes_); }

private:
    std::vector<int> stages_;
    int microbatches_;
    std::vector<std::array<int, kOpTraits.size()>> emitted_;  ///< [chunk][op]
    std::vector<Pass> passes_;
};

}  // namespace vocabpipe
