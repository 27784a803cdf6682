// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/memory_budget.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// The decision about a sample.
enum class Decision : uint8_t {
    open,       ///< may be chosen
    selected,   ///< chosen by bounding
    discarded,  ///< not chosen
};

/// A rank's state of the samples that it owns: 17 bytes each during bounding, 9 afterwards.
class SelectionState {
public:
    /// For the samples [first, last), all open.
    SelectionState(MemoryBudget& memory, int64_t first, int64_t last);

    [[nodiscard]] int64_t first() const { return first_; }
    [[nodiscard]] int64_t last() const { return first_ + size(); }
    [[nodiscard]] int64_t size() const { return static_cast<int64_t>(marks_.size()); }

    [[nodiscard]] Decision decision(int64_t node) const {
        return static_cast<Decision>(marks_[index(node)] & kDecision);
    }
    [[nodiscard]] bool is_open(int64_t node) const { return decision(node) == Decision::open; }
    /// Whether it is selected or open.
    [[nodiscard]] bool is_in(int64_t node) const { return decision(node) != Decision::discarded; }
    void decide(int64_t node, Decision decision) {
        uint8_t& mark = marks_[index(node)];
        mark = static_cast<uint8_t>((mark & ~kDecision) | static_cast<uint8_t>(decision));
    }
    /// A temporary mark, for use within one phase.
    [[nodiscard]] bool marked(int64_t node) const { return (marks_[index(node)] & kMark) != 0; }
    void mark(int64_t node) { marks_[index(node)] |= kMark; }
    void unmark(int64_t node) { marks_[index(node)] &= static_cast<uint8_t>(~kMark); }

    /// alpha * utility - beta * similarities to selected neighbours.
    [[nodiscard]] int64_t& u_max(int64_t node) { return u_max_[index(node)]; }
    [[nodiscard]] int64_t u_max(int64_t node) const { return u_max_[index(node)]; }

    /// This rank's number of samples with the decision.
    [[nodiscard]] int64_t count(Decision decision) const;

    /// Bytes per sample, without and with bounding's lower bounds.
    static constexpr uint64_t kBytes = 9, kBytesWhileBounding = 17;

private:
    static constexpr uint8_t kDecision = 3, kMark = 4;
    [[nodiscard]] size_t index(int64_t node) const { return static_cast<size_t>(node - first_); }

    MemoryLease lease_;
    int64_t first_;
    std::vector<uint8_t> marks_;
    std::vector<int64_t> u_max_;
};

}  // namespace vocabpipe
