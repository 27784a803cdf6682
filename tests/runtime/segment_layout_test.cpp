// SPDX-License-Identifier: Apache-2.0
// Where rings and their counters lie in a segment of shared memory.
#include "src/runtime/transport/shared_memory/segment.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace vocabpipe::shared_memory {
namespace {

TEST(SegmentLayout, GivesEveryRingLinesOfItsOwn) {
    for (const int ranks : {2, 3, 5, 8}) {
        const SegmentLayout layout(ranks, 4096);
        std::vector<std::pair<size_t, size_t>> parts;
        for (int from = 0; from < ranks; ++from) {
            for (int to = 0; to < ranks; ++to) {
                for (int channel = 1; channel < kChannels && from != to; ++channel) {
                    const auto at = static_cast<Channel>(channel);
                    parts.emplace_back(layout.counters(from, to, at), sizeof(RingCounters));
                    parts.emplace_back(layout.ring(from, to, at), layout.ring_bytes());
                }
            }
        }
        std::sort(parts.begin(), parts.end());
        EXPECT_GE(parts.front().first, 2048u) << "the header";
        for (size_t i = 0; i + 1 < parts.size(); ++i) {
            EXPECT_EQ(parts[i].first % kLine, 0u);
            EXPECT_LE(parts[i].first + parts[i].second, parts[i + 1].first);
        }
        EXPECT_EQ(parts.back().first + parts.back().second, layout.bytes());
    }
}

TEST(SegmentLayout, MakesRingsSmallerForManyRanks) {
    EXPECT_EQ(SegmentLayout(2).ring_bytes(), size_t{256} << 10);
    EXPECT_EQ(SegmentLayout(4).ring_bytes(), size_t{256} << 10);
    EXPECT_EQ(SegmentLayout(64).ring_bytes(), 4096u);
    for (int ranks = 2; ranks <= 30; ++ranks) {
        EXPECT_LE(SegmentLayout(ranks).bytes(), size_t{32} << 20) << ranks;
    }
    // The largest power of two from 4 to 256 KiB of which all fit in 32 MiB, if one does.
    for (size_t ranks = 2; ranks <= 64; ++ranks) {
        const auto pages = [](size_t bytes) { return (bytes + 4095) / 4096 * 4096; };
        const size_t rings = ranks * (ranks - 1) * (kChannels - 1);
        const auto all = [&](size_t bytes) {
            return 4096 + pages(rings * sizeof(RingCounters)) + rings * bytes;
        };
        size_t bytes = size_t{256} << 10;
        while (bytes > 4096 && all(bytes) > size_t{32} << 20) bytes /= 2;
        const SegmentLayout layout(static_cast<int>(ranks));
        EXPECT_EQ(layout.ring_bytes(), bytes) << ranks;
        EXPECT_EQ(layout.bytes(), all(bytes)) << ranks;
        // A ring of a given size is not made smaller.
        EXPECT_EQ(SegmentLayout(static_cast<int>(ranks), 1 << 18).bytes(), all(1 << 18)) << ranks;
    }
    EXPECT_EQ(SegmentLayout(2, 4096).ring_bytes(), 4096U);
    EXPECT_THROW(SegmentLayout(2, 2048), UsageError);
    EXPECT_THROW(SegmentLayout(1), UsageError);
    EXPECT_THROW(SegmentLayout(2, 1000), UsageError);
    EXPECT_THROW(SegmentLayout(2, 12'288), UsageError);
    EXPECT_THROW(SegmentLayout(2, 64), UsageError);  // a power of two
}

}  // namespace
}  // namespace vocabpipe::shared_memory
