// SPDX-License-Identifier: Apache-2.0
// Event files, read by a reader of its own: frames, checksums bit by bit, protobuf fields.
#include "src/train/log/event_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <map>
#include <vector>

#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

/// CRC-32C by polynomial division, masked as TFRecord has it.
uint32_t masked_crc(const std::string& bytes) {
    uint32_t crc = 0xffffffff;
    for (const char byte : bytes) {
        crc ^= static_cast<unsigned char>(byte);
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc % 2 == 1 ? 0x82f63b78 : 0);
    }
    crc = ~crc;
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

template <typename T>
T read(const std::string& bytes, size_t at) {
    T value{};
    if (at + sizeof value > bytes.size()) throw std::runtime_error("cut off");
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

/// The data of every record, whose checksums are right.
std::vector<std::string> records(const std::string& file) {
    std::vector<std::string> found;
    for (size_t at = 0; at < file.size();) {
        const auto size = read<uint64_t>(file, at);
        EXPECT_EQ(read<uint32_t>(file, at + 8), masked_crc(file.substr(at, 8)));
        found.push_back(file.substr(at + 12, size));
        EXPECT_EQ(read<uint32_t>(file, at + 12 + size), masked_crc(found.back()));
        at += 16 + size;
    }
    return found;
}

/// Fields of a protobuf message: number -> raw values.
std::multimap<uint64_t, std::string> fields(const std::string& message) {
    std::multimap<uint64_t, std::string> found;
    size_t at = 0;
    const auto varint = [&] {
        uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            const auto byte = static_cast<unsigned char>(message.at(at++));
            value |= static_cast<uint64_t>(byte & 0x7f) << shift;
            if (byte < 0x80) return value;
        }
    };
    while (at < message.size()) {
        const uint64_t key = varint();
        const uint64_t type = key % 8;
        if (type == 0) {
            const uint64_t value = varint();
            found.emplace(key / 8, std::string(reinterpret_cast<const char*>(&value), 8));
            continue;
        }
        const uint64_t size = type == 1 ? 8 : type == 5 ? 4 : type == 2 ? varint() : 1u << 30;
        found.emplace(key / 8, message.substr(at, size));
        at += size;
        if (at > message.size()) throw std::runtime_error("cut off");
    }
    return found;
}

struct Event {
    double wall_time = 0;
    int64_t step = 0;
    std::map<std::string, float> scalars;
};

Event event(const std::string& record) {
    const auto parts = fields(record);
    Event found;
    found.wall_time = read<double>(parts.find(1)->second, 0);
    found.step = read<int64_t>(parts.find(2)->second, 0);
    const auto summary = parts.find(5);
    if (summary == parts.end()) return found;
    for (const auto& [number, value] : fields(summary->second)) {
        EXPECT_EQ(number, 1u);
        const auto of_value = fields(value);
        found.scalars[of_value.find(1)->second] = read<float>(of_value.find(2)->second, 0);
    }
    return found;
}

std::string only_file(const TempFolder& folder) {
    const std::set<std::string> names = folder.names();
    EXPECT_EQ(names.size(), 1u);
    EXPECT_THAT(*names.begin(), ::testing::StartsWith("events.out.tfevents."));
    return read_file(folder / *names.begin());
}

TEST(EventFile, HoldsVersionSessionAndEveryScalarOfEveryStep) {
    const TempFolder folder;
    EventFile file(folder / "", 41);
    const ScalarSummary first[] = {{"lm loss", 3.25F}, {"learning-rate", 1e-4F}};
    const ScalarSummary second[] = {{"lm loss", 3.0F}};
    file.add(41, first);
    file.add(int64_t{1} << 40, second);
    file.close();
    const std::vector<std::string> found = records(only_file(folder));
    ASSERT_EQ(found.size(), 4u);
    EXPECT_EQ(fields(found[0]).find(3)->second, "brain.Event:2");
    // SessionLog.START at the first step: readers forget what came later.
    EXPECT_EQ(event(found[1]).step, 41);
    EXPECT_EQ(read<uint64_t>(fields(fields(found[1]).find(7)->second).find(1)->second, 0), 1u);
    EXPECT_EQ(event(found[2]).step, 41);
    EXPECT_THAT(event(found[2]).scalars,
                ElementsAre(Pair("learning-rate", 1e-4F), Pair("lm loss", 3.25F)));
    EXPECT_EQ(event(found[3]).step, int64_t{1} << 40);
    EXPECT_THAT(event(found[3]).scalars, ElementsAre(Pair("lm loss", 3.0F)));
    for (const std::string& record : found) {
        EXPECT_NEAR(event(record).wall_time, static_cast<double>(std::time(nullptr)), 60);
    }
}

TEST(EventFile, IsReadableBeforeItIsClosed) {
    const TempFolder folder;
    EventFile file(folder / "", 1);
    const ScalarSummary one[] = {{"lm loss", 1.0F}};
    file.add(1, one);
    EXPECT_EQ(records(only_file(folder)).size(), 3u);
}

TEST(EventFile, NeverTouchesThatOfAnotherRun) {
    const TempFolder folder;
    const ScalarSummary one[] = {{"lm loss", 1.0F}};
    EventFile first(folder / "", 1);
    first.add(1, one);
    EventFile second(folder / "", 2);  // in the same second, by the same process
    second.add(2, one);
    EXPECT_NE(first.path(), second.path());
    EXPECT_EQ(records(read_file(first.path())).size(), 3u);
    EXPECT_EQ(records(read_file(second.path())).size(), 3u);
}

TEST(EventFile, InAFolderThatIsNoneIsAnErrorWithTheFlag) {
    const TempFolder folder;
    try {
        EventFile file(folder / "none", 1);
        ADD_FAILURE();
    } catch (const OutputFileError& error) {
        EXPECT_THAT(error.what(), ::testing::StartsWith("--tensorboard-dir "));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
