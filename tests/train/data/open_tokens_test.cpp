// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/open_tokens.hpp"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/read_all.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/data/worked_example.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;
using testing::read_all;
using testing::TempFolder;

TEST(RawTokens, AreReadInBothWidthsAndFromSeveralFiles) {
    const TempFolder folder;
    testing::write_file(folder / "a.bin", bytes_of<uint16_t>({1, 65535}));
    testing::write_file(folder / "b.bin", bytes_of<uint16_t>({3, 0}));
    EXPECT_EQ(read_all(*open_tokens(folder / "?.bin", DataFormat::raw_u16)),
              (std::vector<int32_t>{1, 65535, 3, 0}));
    EXPECT_EQ(read_all(*open_tokens(folder / "b.bin", DataFormat::raw_u32)),
              (std::vector<int32_t>{3}));
}

TEST(RawTokens, OfOneByteAreTheTextItself) {
    const TempFolder folder;
    testing::write_file(folder / "text.txt", "a\xff\n");
    EXPECT_EQ(read_all(*open_tokens(folder / "text.txt", DataFormat::raw_u8)),
              (std::vector<int32_t>{97, 255, 10}));
}

TEST(RawTokens, RefuseAPartialTokenAndAHugeValue) {
    const TempFolder folder;
    testing::write_file(folder / "a.bin", "abc");
    EXPECT_THAT(testing::message_of<InputFileError>(
                    [&] { (void)open_tokens(folder / "a.bin", DataFormat::raw_u16); }),
                HasSubstr("has 3 bytes, which is not a multiple of 2"));
    testing::write_file(folder / "a.bin", bytes_of<uint32_t>({7, 4294967295}));
    const auto source = open_tokens(folder / "a.bin", DataFormat::raw_u32);
    EXPECT_THAT(testing::message_of<InputFileError>([&] { (void)read_all(*source); }),
                HasSubstr("a.bin: token 1 is 4294967295"));
}

TEST(OpenTokens, SaysWhatItFoundAndWhatToDo) {
    const std::string prepare = "vocabpipe data prepare";
    const std::vector<std::tuple<std::string, std::string, std::string>> table{
        {"", "an empty file", prepare},
        {"In the beginning", "plain text", prepare},
        {"Gr\xc3\xbc\xc3\x9f"
         "e",
         "plain text", prepare},
        {"{\"text\": 1}", "JSON text", prepare},
        {"\x1f\x8b\x08 abc", "gzip-compressed data", "decompress"},
        {"\x28\xb5\x2f\xfd abc", "zstd-compressed data", "decompress"},
        {"PK\x03\x04", "a zip archive", "decompress"},
        {"\x93NUMPY\x01", "a NumPy array", "raw-u16"},
        {std::string("BIN.TOK\n\2\0\0\0", 12), "an LLMQ token file", "raw-u32"},
        {"PAR1", "a Parquet file", prepare},
        {bytes_of<uint16_t>({15496, 995, 50256, 1}), "first bytes 88 3c e3 03 50 c4 01 00",
         "--data-format raw-u16 or raw-u32"},
        {std::string(1, '\0'), "first bytes 00", "--data-format"},
    };
    for (const auto& [bytes, found, remedy] : table) {
        const TempFolder folder;
        testing::write_file(folder / "x", bytes);
        const auto message =
            testing::message_of<InputFileError>([&] { (void)open_tokens(folder / "x"); });
        EXPECT_THAT(message, HasSubstr(folder / "x: is not a token file but "));
        EXPECT_THAT(message, HasSubstr(found));
        EXPECT_THAT(message, HasSubstr(remedy));
    }
}

TEST(OpenTokens, NamesWhatIsMissing) {
    const TempFolder folder;
    const auto message = [](const std::string& path) {
        return testing::message_of<InputFileError>([&] { (void)open_tokens(path); });
    };
    EXPECT_THAT(message(folder / "none"), HasSubstr("does not exist"));
    EXPECT_THAT(message(folder / "none*"), HasSubstr("no file matches"));
    EXPECT_THAT(message(""), HasSubstr("data path is empty"));
    EXPECT_THAT(message(",,"), HasSubstr("data path is empty"));
    testing::write_file(folder / "half.bin", testing::example_bin());
    EXPECT_THAT(message(folder / "half"), HasSubstr("half.idx: does not exist, but"));
    const auto raw = [](const std::string& path) {
        return testing::message_of<InputFileError>(
            [&] { (void)open_tokens(path, DataFormat::raw_u16); });
    };
    EXPECT_THAT(raw(folder / "half"), HasSubstr("half: does not exist, but"));
    EXPECT_THAT(raw(folder / "none"), HasSubstr("none: does not exist"));
    testing::write_file(folder / "whole.bin", testing::example_bin());
    testing::write_file(folder / "whole.idx", "");
    EXPECT_THAT(raw(folder / "whole"), HasSubstr("remove --data-format"));
    for (const char* list : {"whole,half", "whole.bin,half.bin", "w*"}) {
        EXPECT_THAT(message(folder / list),
                    HasSubstr("separated by spaces: 0.5 " + (folder / "whole") + " 0.5"))
            << list;
    }
    std::filesystem::create_directory(folder / "folder");
    EXPECT_THAT(message(folder / "folder"), HasSubstr("a folder"));
}

TEST(OpenTokens, FormatNamesAreParsed) {
    EXPECT_EQ(parse_data_format("auto"), DataFormat::automatic);
    EXPECT_EQ(parse_data_format("raw-u8"), DataFormat::raw_u8);
    EXPECT_EQ(parse_data_format("raw-u16"), DataFormat::raw_u16);
    EXPECT_EQ(parse_data_format("raw-u32"), DataFormat::raw_u32);
    EXPECT_THAT(testing::message_of<UsageError>([] { (void)parse_data_format("u8"); }),
                HasSubstr("--data-format u8: must be"));
}

}  // namespace
}  // namespace vocabpipe
