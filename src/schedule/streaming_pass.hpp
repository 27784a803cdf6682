// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// A simulated pass with streamed rows: the points in its work at which it needs a piece of its
/// input or has made one of its output. Work is in the simulator's unit.
class StreamingPass {
public:
    /// A point at which the first `piece` pieces are needed, or have been made.
    struct Point {
        int64_t at = 0;  ///< work
        bool needed = false;
        int piece = 0;
    };

    /// A pass without streamed rows.
    StreamingPass() = default;
    /// `work`: in total; `needed`, `made`: pieces of input and output, 0: not streamed; `unit`:
    /// work per ns. The cost of a piece is added where it is used or made.
    StreamingPass(int64_t work, const StreamedShare& share, int needed, int made, int64_t unit)
        : made_(made) {
        const int64_t uses = unit * share.input_piece_ns * std::max(needed - 1, 0);
        const int64_t makes = unit * share.output_piece_ns * std::max(made - 1, 0);
        work_ = work + uses + makes;
        const int64_t used = work * share.input_end / 1000 + uses;
        for (int k = 0; k < needed; ++k) points_.push_back({used * k / needed, true, k + 1});
        const int64_t begin = work * share.output_begin / 1000 + uses;
        const int64_t end = work * share.output_end / 1000 + uses + makes;
        for (int k = 1; k <= made; ++k) {
            points_.push_back({begin + (end - begin) * k / made, false, k});
        }
        // At equal points, needed pieces come before made ones.
        std::ranges::stable_sort(points_, {}, &Point::at);
    }

    [[nodiscard]] explicit operator bool() const { return !points_.empty(); }
    /// The point that the work has reached; null: on the way to the next.
    [[nodiscard]] const Point* here() const {
        return next_ < points_.size() && points_[next_].at <= position_ ? &points_[next_] : nullptr;
    }
    /// Moves past this point.
    void pass() { ++next_; }
    [[nodiscard]] bool is_over() const { return next_ == points_.size() && position_ >= work_; }
    /// Work to the next point, or to the end.
    [[nodiscard]] int64_t work_to_next() const { return target() - position_; }
    /// Records that this work has been done.
    void reached() { position_ = target(); }

    void wait(int64_t now) {
        waits_ = true;
        since_ns_ = now;
    }
    void go_on() { waits_ = false; }
    [[nodiscard]] bool waits() const { return waits_; }
    [[nodiscard]] int64_t since_ns() const { return since_ns_; }
    /// Pieces of its output.
    [[nodiscard]] int made() const { return made_; }

private:
    [[nodiscard]] int64_t target() const {
        return next_ < points_.size() ? points_[next_].at : work_;
    }

    int64_t work_ = 0;
    int64_t position_ = 0;
    int made_ = 0;
    std::vector<Point> points_;
    size_t next_ = 0;
    bool waits_ = false;
    int64_t since_ns_ = 0;
};

}  // namespace vocabpipe
