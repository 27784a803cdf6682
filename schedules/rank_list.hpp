// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace vocabpipe {

/// The pass list of one rank while a rule writes it. Every kind of pass counts its own
/// microbatches, as in the rules of the paper: `emit(Op::F)` appends the next forward, and does
/// nothing once every microbatch has had one.
class RankList {
public:
    /// `kept` < `microbatches` is for rules that need more microbatches than there are: they count
    /// up to `microbatches`, but passes of microbatches >= kept are not appended. The rest of a
    /// valid schedule stays valid, because no pass needs a pass of another microbatch.
    RankList(int stage, int microbatches, int kept)
        : stage_(static_cast<uint16_t>(stage)), microbatches_(microbatches), kept_(kept) {
        passes_.reserve(6 * static_cast<size_t>(kept));
    }

    template <typename... Ops>
    void emit(Ops... ops) {
        (append(ops), ...);
    }

    /// Passes of this kind that the rule has emitted, including those not kept.
    [[nodiscard]] int emitted(Op op) const { return emitted_[static_cast<size_t>(op)]; }
    [[nodiscard]] int microbatches() const { return microbatches_; }
    [[nodiscard]] std::vector<Pass> take() && { return std::move(passes_); }

private:
    void append(Op op) {
        int& next = emitted_[static_cast<size_t>(op)];
        if (next == microbatches_) return;
        if (next < kept_) {
            const uint16_t stage = traits(op).has_stage ? stage_ : uint16_t{0};
            passes_.push_back({op, stage, static_cast<uint32_t>(next)});
        }
        ++next;
    }

    uint16_t stage_;
    int microbatches_;
    int kept_;
    std::array<int, kOpTraits.size()> emitted_{};
    std::vector<Pass> passes_;
};

}  // namespace vocabpipe
