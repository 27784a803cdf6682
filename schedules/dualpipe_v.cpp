// SPDX-License-Identifier: Apache-2.0
#include "schedules/families.hpp"

#include "schedules/chunk_list.hpp"
#include "schedules/placement.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

namespace vocabpipe {

namespace {

using enum Op;

constexpr int kDown = 0;  // the chunk on the way down the ranks, holding stage r
constexpr int kUp = 1;    // on the way up again, stage 2p-1-r

/// Writes the list of one rank. B and I of a chunk share one microbatch count, and every I queues
/// its W.
class Writer {
public:
    Writer(int ranks, int rank, int microbatches)
        : list_({rank, 2 * ranks - 1 - rank}, microbatches) {}

    void forward(int chunk) { list_.emit(F, chunk); }
    void backward(int chunk, bool split) {
        const int microbatch = backwards_[static_cast<size_t>(chunk)]++;
        list_.append(split ? I : B, chunk, microbatch);
        if (split) waiting_.emplace_back(chunk, microbatch);
    }
    /// Appends the oldest queued W, if any.
    void weight() {
        if (waiting_.empty()) return;
        list_.append(W, waiting_.front().first, waiting_.front().second);
        waiting_.pop_front();
    }
    void pair(int forward_chunk, int backward_chunk) {
        forward(forward_chunk);
        list_.overlap_with_next();
        backward(backward_chunk, false);
    }
    [[nodiscard]] std::vector<Pass> take() && { return std::move(list_).take(); }

private:
    ChunkList list_;
    std::array<int, 2> backwards_{};
    std::deque<std::pair<int, int>> waiting_;  ///< chunk and microbatch
};

// DeepSeek-AI 2025 (deepseek-ai/DualPipe); the numbers are its eight steps.
//
//   p=2, m=4, rank 1 (stages 1 and 2):
//   1F0 2F0 1F1 2F1 | 1F2 2B0 (2F2;1B0) (1F3;2B1) (2F3;1B1) | 2B2 1B2 2I3 1I3 | 2W3 1W3
//
// Largest idle time within a span, pairs as long as their members: (p-1)(F+2I-W)
// - min(F, (p-1)(I-F)) for I >= F. Memory 2p+1 chunks on every rank. Pays only if the runtime
// really interleaves the members of a pair. The rule needs m >= 2p; for fewer its list for 2p
// microbatches is cut.
std::vector<Pass> list_of(const ScheduleOptions& options, int rank) {
    const int p = options.ranks;
    const int m = std::max(options.microbatches, 2 * p);
    const int below = p - 1 - rank;
    Writer list(p, rank, m);
    for (int i = 0; i < 2 * below; ++i) list.forward(kDown);  // 1
    for (int i = 0; i < rank + 1; ++i) {                      // 2
        list.forward(kDown);
        list.forward(kUp);
    }
    for (int i = 0; i < below; ++i) {  // 3
        list.backward(kUp, true);
        list.weight();
        list.forward(kUp);
    }
    for (int i = 0; i < m - 2 * p + rank + 1; ++i) {  // 4
        if (i == 0 && below == 0) {
            // On the last rank the input of the second member would come from the rank itself.
            list.forward(kDown);
            list.backward(kUp, false);
        } else {
            list.pair(kDown, kUp);
        }
        list.pair(kUp, kDown);
    }
    for (int i = 0; i < below; ++i) {  // 5
        list.backward(kUp, false);
        list.pair(kUp, kDown);
    }
    // 6. The second half of these backwards is split; for odd r from a kUp on, for even r from a
    // kDown on.
    for (int i = 0; i < 2 * (rank + 1); ++i) list.backward(i % 2 == 0 ? kUp : kDown, i > rank);
    for (int i = 0; i < below; ++i) {  // 7
        list.weight();
        list.backward(kDown, true);
    }
    for (int i = 0; i < rank + 1; ++i) list.weight();  // 8
    return drop_microbatches(std::move(list).take(), options.microbatches);
}

}  // namespace

Schedule dualpipe_v(const ScheduleOptions& options) {
    return transformer_schedule(options, Placement::v_shape, 2,
                                [&](int rank) { return list_of(options, rank); });
}

}  // namespace vocabpipe
