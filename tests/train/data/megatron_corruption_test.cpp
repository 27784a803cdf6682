// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "src/train/data/megatron_reader.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/data/worked_example.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;
using testing::TempFolder;

constexpr auto kMaxU64 = std::numeric_limits<uint64_t>::max();
constexpr auto kMaxI64 = std::numeric_limits<int64_t>::max();
constexpr auto kMinI64 = std::numeric_limits<int64_t>::min();

std::string patched(std::string bytes, size_t offset, const std::string& patch) {
    return bytes.replace(offset, patch.size(), patch);
}

struct Corruption {
    const char* name;
    size_t offset;  // in the .idx
    std::string bytes;
    const char* reason;
};

class MegatronCorruption : public ::testing::TestWithParam<Corruption> {};

TEST_P(MegatronCorruption, IsAnInputFileErrorWithFileAndReason) {
    const auto& [name, offset, bytes, reason] = GetParam();
    const TempFolder folder;
    testing::write_file(folder / "set.bin", testing::example_bin());
    testing::write_file(folder / "set.idx", patched(testing::example_idx(), offset, bytes));
    const auto message =
        testing::message_of<InputFileError>([&] { (void)open_megatron(folder / "set"); });
    EXPECT_THAT(message, HasSubstr("set."));
    EXPECT_THAT(message, HasSubstr(reason));
}

// Offsets: 9 version, 17 type, 18 sequences, 26 boundaries, 34 lengths, 42 offsets, 58 documents.
INSTANTIATE_TEST_SUITE_P(
    Table, MegatronCorruption,
    ::testing::Values(
        Corruption{"magic", 0, "X", "no MMIDIDX magic"},
        Corruption{"magic_end", 8, "X", "no MMIDIDX magic"},
        Corruption{"gzip_instead", 0, "\x1f\x8b\x08", "gzip-compressed data"},
        Corruption{"version_0", 9, bytes_of<uint64_t>({0}), "version 0 is not supported"},
        Corruption{"version_2", 9, bytes_of<uint64_t>({2}), "version 2 is not supported"},
        Corruption{"version_huge", 9, bytes_of<uint64_t>({kMaxU64}),
                   "version 18446744073709551615"},
        Corruption{"type_0", 17, bytes_of<uint8_t>({0}), "token type 0 is unknown"},
        Corruption{"type_f64", 17, bytes_of<uint8_t>({6}), "f64"},
        Corruption{"type_f32", 17, bytes_of<uint8_t>({7}), "f32"},
        Corruption{"type_9", 17, bytes_of<uint8_t>({9}), "token type 9 is unknown"},
        Corruption{"type_100", 17, bytes_of<uint8_t>({100}), "token type 100 is unknown"},
        Corruption{"type_255", 17, bytes_of<uint8_t>({255}), "token type 255 is unknown"},
        Corruption{"type_i32", 17, bytes_of<uint8_t>({4}), "starts at byte 8"},
        Corruption{"type_u8", 17, bytes_of<uint8_t>({1}), "starts at byte 8"},
        Corruption{"sequences_0", 18, bytes_of<uint64_t>({0}), "for 0 sequences"},
        Corruption{"sequences_1", 18, bytes_of<uint64_t>({1}), "for 1 sequences"},
        Corruption{"sequences_3", 18, bytes_of<uint64_t>({3}), "8 more per document boundary"},
        Corruption{"sequences_near_2_63", 18, bytes_of<uint64_t>({(uint64_t{1} << 63) - 1}),
                   "9223372036854775807 sequences"},
        Corruption{"sequences_2_63", 18, bytes_of<uint64_t>({uint64_t{1} << 63}), "sequences"},
        Corruption{"sequences_max", 18, bytes_of<uint64_t>({kMaxU64}), "sequences"},
        Corruption{"sequences_wrap_12", 18, bytes_of<uint64_t>({kMaxU64 / 12 + 3}), "sequences"},
        Corruption{"boundaries_0", 26, bytes_of<uint64_t>({0}), "document array is empty"},
        Corruption{"boundaries_1", 26, bytes_of<uint64_t>({1}), "1 document boundaries"},
        Corruption{"boundaries_2", 26, bytes_of<uint64_t>({2}), "2 document boundaries"},
        Corruption{"boundaries_4", 26, bytes_of<uint64_t>({4}), "for 4 boundaries"},
        Corruption{"boundaries_near_2_63", 26, bytes_of<uint64_t>({(uint64_t{1} << 63) - 1}),
                   "9223372036854775807 boundaries"},
        Corruption{"boundaries_max", 26, bytes_of<uint64_t>({kMaxU64}), "boundaries"},
        Corruption{"boundaries_wrap_8", 26, bytes_of<uint64_t>({kMaxU64 / 8 + 4}), "boundaries"},
        Corruption{"length_negative", 34, bytes_of<int32_t>({-1}), "sequence 0 has length -1"},
        Corruption{"length_min", 38, bytes_of<int32_t>({-2147483647 - 1}), "sequence 1"},
        Corruption{"first_length_short", 34, bytes_of<int32_t>({3}), "starts at byte 8"},
        Corruption{"first_length_long", 34, bytes_of<int32_t>({5}), "starts at byte 8"},
        Corruption{"last_length_short", 38, bytes_of<int32_t>({2}), "which is 12 bytes"},
        Corruption{"last_length_long", 38, bytes_of<int32_t>({4}), "which is 16 bytes"},
        Corruption{"last_length_max", 38, bytes_of<int32_t>({2147483647}), "4294967302 bytes"},
        Corruption{"offset_first_not_0", 42, bytes_of<int64_t>({2}), "sequence 0 starts at byte 2"},
        Corruption{"offset_negative", 42, bytes_of<int64_t>({-8}), "starts at byte -8"},
        Corruption{"offset_not_monotonic", 50, bytes_of<int64_t>({0}),
                   "sequence 1 starts at byte 0"},
        Corruption{"offset_gap", 50, bytes_of<int64_t>({10}), "sequence 1 starts at byte 10"},
        Corruption{"offset_odd", 50, bytes_of<int64_t>({7}), "sequence 1 starts at byte 7"},
        Corruption{"offset_outside", 50, bytes_of<int64_t>({14}), "sequence 1 starts at byte 14"},
        Corruption{"offset_max", 50, bytes_of<int64_t>({kMaxI64}), "byte 9223372036854775807"},
        Corruption{"offset_min", 50, bytes_of<int64_t>({kMinI64}), "byte -9223372036854775808"},
        Corruption{"document_first_not_0", 58, bytes_of<int64_t>({1}), "the first must be 0"},
        Corruption{"document_negative", 66, bytes_of<int64_t>({-1}), "boundary 1 is -1"},
        Corruption{"document_min", 66, bytes_of<int64_t>({kMinI64}), "boundary 1 is -922"},
        Corruption{"document_outside", 66, bytes_of<int64_t>({3}), "only 2 sequences"},
        Corruption{"document_max", 74, bytes_of<int64_t>({kMaxI64}), "only 2 sequences"},
        Corruption{"document_not_monotonic", 66, bytes_of<int64_t>({2, 1}),
                   "less than the previous one"},
        Corruption{"document_last_short", 74, bytes_of<int64_t>({1}),
                   "the last document boundary"}),
    [](const auto& info) { return info.param.name; });

TEST(MegatronReader, RefusesAnIndexCutAtAnyLength) {
    const TempFolder folder;
    testing::write_file(folder / "set.bin", testing::example_bin());
    const std::string whole = testing::example_idx();
    for (size_t length = 0; length < whole.size(); ++length) {
        testing::write_file(folder / "set.idx", whole.substr(0, length));
        const auto message =
            testing::message_of<InputFileError>([&] { (void)open_megatron(folder / "set"); });
        EXPECT_THAT(message, HasSubstr(folder / "set.idx")) << length;
    }
}

TEST(MegatronReader, RefusesAnIndexWithBytesBehindItsEnd) {
    const TempFolder folder;
    testing::write_file(folder / "set.bin", testing::example_bin());
    for (const size_t more : {size_t{1}, size_t{3}, size_t{8}, size_t{100}}) {
        testing::write_file(folder / "set.idx", testing::example_idx() + std::string(more, '\0'));
        EXPECT_THROW((void)open_megatron(folder / "set"), InputFileError) << more;
    }
}

TEST(MegatronReader, RefusesATokenFileOfAnyOtherLength) {
    const TempFolder folder;
    testing::write_file(folder / "set.idx", testing::example_idx());
    for (size_t length = 0; length < 20; ++length) {
        testing::write_file(folder / "set.bin",
                            (testing::example_bin() + std::string(8, '\0')).substr(0, length));
        if (length != testing::example_bin().size()) {
            const auto message =
                testing::message_of<InputFileError>([&] { (void)open_megatron(folder / "set"); });
            EXPECT_THAT(message, HasSubstr("set.bin: has " + std::to_string(length) + " bytes"));
        }
    }
}

TEST(MegatronReader, SurvivesEverySingleByteChanged) {
    const TempFolder folder;
    testing::write_file(folder / "set.bin", testing::example_bin());
    for (size_t at = 0; at < testing::example_idx().size(); ++at) {
        for (const char value : {'\x00', '\x01', '\x7f', '\x80', '\xff'}) {
            const std::string idx = patched(testing::example_idx(), at, std::string(1, value));
            testing::write_file(folder / "set.idx", idx);
            // Documents may be cut elsewhere; everything else is refused.
            const bool document = idx == testing::example_idx() || at == 66;
            try {
                EXPECT_EQ(open_megatron(folder / "set")->size(), 7);
                EXPECT_TRUE(document) << at << " " << static_cast<int>(value);
            } catch (const InputFileError&) {
            }
        }
    }
}

TEST(MegatronReader, NamesAMissingOrUnreadableFile) {
    const TempFolder folder;
    const auto open = [&] { (void)open_megatron(folder / "set"); };
    EXPECT_THAT(testing::message_of<InputFileError>(open),
                HasSubstr("set.idx: cannot open: No such"));
    testing::write_file(folder / "set.idx", testing::example_idx());
    EXPECT_THAT(testing::message_of<InputFileError>(open),
                HasSubstr("set.bin: cannot open: No such"));
    std::filesystem::create_directory(folder / "set.bin");
    EXPECT_THAT(testing::message_of<InputFileError>(open),
                HasSubstr("set.bin: is not a regular file but a folder"));
}

}  // namespace
}  // namespace vocabpipe
