// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/train/text/text_file.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/text/compress.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using testing::gzip;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;
using testing::write_file;
using testing::zstd;

constexpr size_t kMostBlockBytes = size_t{1} << 20;

std::string read_text_of(const std::string& path) {
    std::string text;
    int64_t bytes = 0;
    read_text_file(
        path,
        [&](std::string_view block) {
            EXPECT_LE(block.size(), kMostBlockBytes);
            text += block;
        },
        [&](int64_t read) { bytes += read; });
    EXPECT_EQ(bytes, text_file_bytes(path));
    return text;
}

std::string three_mib() {
    std::string text;
    for (int i = 0; text.size() < size_t{3} << 20; ++i) text += std::to_string(i * i) + " é\n";
    return text;
}

TEST(CompressedText, IsReadAsThoughItWerePlain) {
    const TempFolder folder;
    const std::string text = three_mib();
    const std::string half = text.substr(0, text.size() / 2);
    const std::string rest = text.substr(half.size());
    const std::string skippable("\x53\x2a\x4d\x18\x03\0\0\0abc", 11);
    const std::vector<std::pair<std::string, std::string>> files{
        {"plain", text},
        {"one_member", gzip(text)},
        {"two_members", gzip(half) + gzip(rest)},
        {"empty_member", gzip("") + gzip(text) + gzip("")},
        {"zero_padding", gzip(text) + std::string(1000, '\0')},
        {"one_frame", zstd(text)},
        {"two_frames", zstd(half) + zstd(rest)},
        {"skippable_frames", skippable + zstd(half) + skippable + zstd(rest)},
    };
    for (const auto& [name, bytes] : files) {
        write_file(folder / name, bytes);
        EXPECT_EQ(read_text_of(folder / name), text) << name;
    }
    write_file(folder / "nothing.gz", gzip(""));
    EXPECT_EQ(read_text_of(folder / "nothing.gz"), "");
}

TEST(CompressedText, ThatIsDamagedOrCutOffIsNamed) {
    const TempFolder folder;
    const std::string text = three_mib();
    const auto refusal = [&](const std::string& bytes) {
        write_file(folder / "x", bytes);
        return message_of<InputFileError>([&] { (void)read_text_of(folder / "x"); });
    };
    for (const std::string& whole : {gzip(text), zstd(text)}) {
        for (const size_t cut : {size_t{5}, whole.size() / 2, whole.size() - 1}) {
            EXPECT_THAT(refusal(whole.substr(0, cut)),
                        HasSubstr("/x: the " + std::string(whole[0] == '\x1f' ? "gzip" : "zstd") +
                                  " data is cut off after "));
        }
        std::string damaged = whole;
        damaged[whole.size() / 2] = static_cast<char>(damaged[whole.size() / 2] ^ 0x10);
        EXPECT_THAT(refusal(damaged), HasSubstr(" data is damaged ("));
        damaged = whole;  // the checksum at the end
        damaged[whole.size() - 2] = static_cast<char>(damaged[whole.size() - 2] ^ 0x10);
        EXPECT_THAT(refusal(damaged), HasSubstr(" data is damaged ("));
    }
    EXPECT_THAT(refusal(gzip("a") + "no member"), HasSubstr("gzip data is damaged"));
    EXPECT_THAT(refusal(zstd("a") + "no frame"), HasSubstr("zstd data is damaged"));
    EXPECT_THAT(refusal(zstd(text, 28)),
                HasSubstr("needs a window of more than 128 MiB after 0 bytes of text; compress the "
                          "file again without --long"));
    EXPECT_THAT(refusal("BZh91AY"), HasSubstr("is not text but bzip2-compressed data"));
    EXPECT_THAT(refusal("PAR1...."), HasSubstr("is not text but a Parquet file; export the text"));
}

TEST(CompressedText, ThatIsABombIsReadInBlocks) {
    const TempFolder folder;
    const std::string part(size_t{64} << 20, 'x');
    for (const std::string& member : {gzip(part, 9), zstd(part)}) {
        std::string bomb;
        for (int i = 0; i < 8; ++i) bomb += member;
        write_file(folder / "bomb", bomb);
        size_t bytes = 0;
        read_text_file(folder / "bomb", [&](std::string_view block) {
            ASSERT_LE(block.size(), kMostBlockBytes);
            bytes += block.size();
        });
        EXPECT_EQ(bytes, 8 * part.size());
    }
}

}  // namespace
}  // namespace vocabpipe
