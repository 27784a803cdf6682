// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/shared_memory/ring.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <vector>

namespace vocabpipe::shared_memory {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(uint32_t id, size_t size) {
    std::minstd_rand random(id + 1);
    Bytes bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 8);
    return bytes;
}

TEST(Ring, GivesBackMessagesOfAnySizeInOrderHoweverItsEndsTakeTurns) {
    for (unsigned seed = 0; seed < 50; ++seed) {
        std::mt19937 random(seed);
        Bytes memory(size_t{4096} << (seed % 3));
        RingCounters counters;
        RingWriter writer(counters, memory);
        RingReader reader(counters, memory);
        std::deque<Bytes> sent;
        for (uint32_t i = 0; i < 60; ++i) {
            const size_t longest = i % 7 == 0 ? 40'000 : i % 3 == 0 ? 4096 : 200;
            sent.push_back(random_bytes(seed * 100 + i, i % 11 == 0 ? 0 : random() % longest));
        }
        size_t writing = 0, written = 0, reading = 0, read = 0;
        Bytes received;
        while (reading < sent.size()) {
            if (random() % 2 == 0 && writing < sent.size()) {
                if (writer.write(sent[writing], written)) {
                    ++writing;
                    written = 0;
                }
                continue;
            }
            const std::optional<uint64_t> bytes = reader.next();
            if (!bytes) continue;
            ASSERT_EQ(*bytes, sent[reading].size()) << "seed " << seed << " message " << reading;
            received.resize(*bytes);
            if (!reader.read(received, read)) continue;
            ASSERT_EQ(received, sent[reading]) << "seed " << seed << " message " << reading;
            ++reading;
            read = 0;
        }
        EXPECT_EQ(writing, sent.size());
        EXPECT_FALSE(reader.next());
    }
}

TEST(Ring, FillsUpAndHoldsNoMoreThanItsBytes) {
    Bytes memory(4096);
    RingCounters counters;
    RingWriter writer(counters, memory);
    const Bytes message(10'000);
    size_t done = 0;
    EXPECT_FALSE(writer.write(message, done));
    EXPECT_EQ(done, 4096 - kLine);
    EXPECT_FALSE(writer.write(message, done));
    EXPECT_EQ(done, 4096 - kLine);
}

TEST(Ring, BringsAnEmptyMessageThatNothingFollows) {
    Bytes memory(2 * kLine);
    RingCounters counters;
    RingWriter writer(counters, memory);
    RingReader reader(counters, memory);
    for (int turn = 0; turn < 5; ++turn) {  // more lines than the ring has
        size_t written = 0;
        size_t read = 0;
        EXPECT_FALSE(reader.next());
        EXPECT_TRUE(writer.write({}, written));
        EXPECT_EQ(reader.next(), 0U) << turn;
        EXPECT_TRUE(reader.read({}, read));
    }
}

TEST(Ring, HasNoRoomForAnotherEmptyMessageWhenItIsFullOfThem) {
    Bytes memory(2 * kLine);
    RingCounters counters;
    RingWriter writer(counters, memory);
    RingReader reader(counters, memory);
    size_t done = 0;
    EXPECT_TRUE(writer.write({}, done));
    EXPECT_TRUE(writer.write({}, done));
    EXPECT_FALSE(writer.write({}, done));
    EXPECT_EQ(reader.next(), 0U);
    EXPECT_TRUE(reader.read({}, done));
    EXPECT_TRUE(writer.write({}, done)) << "one was read";
    EXPECT_FALSE(writer.write({}, done));
}

}  // namespace
}  // namespace vocabpipe::shared_memory
