// SPDX-License-Identifier: Apache-2.0
// Changes bytes of inputs at random: a preparation ends well, or names the file, and leaves
// nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "src/train/prepare/prepare_tokens.hpp"
#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/prepare/texts.hpp"
#include "tests/train/text/compress.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::TempFolder;
using Names = std::set<std::string>;

std::string damaged(std::string bytes, std::mt19937& random) {
    const auto below = [&](size_t limit) { return random() % limit; };
    for (size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
        const size_t at = below(bytes.size());
        switch (below(4)) {
            case 0:
                bytes[at] = static_cast<char>(below(256));
                break;
            case 1:
                bytes.erase(at, 1 + below(40));
                break;
            case 2:
                bytes.insert(at, bytes.substr(below(bytes.size()), below(40)));
                break;
            default:
                bytes.resize(at);
        }
    }
    return bytes;
}

class DamagedInputs : public ::testing::TestWithParam<std::string> {};

TEST_P(DamagedInputs, AreRefusedByNameOrPreparedAndLeaveNothingHalfWritten) {
    const std::string& kind = GetParam();
    const TempFolder folder;
    const std::string lines = testing::json_lines(testing::documents(30, 60));
    const std::string whole = kind == "jsonl"  ? lines
                              : kind == "gzip" ? testing::gzip(lines)
                                               : testing::zstd(lines);
    std::mt19937 random(42);
    int refused = 0;
    for (int round = 0; round < 400; ++round) {
        testing::write_file(folder / "x", damaged(whole, random));
        try {
            (void)prepare_tokens({.inputs = {{folder / "x", "text"}},
                                  .output = folder / "set",
                                  .max_bad_lines = round % 2 == 0 ? 0 : 3,
                                  .workers = 1 + round % 2},
                                 ByteTokenizer());
            ASSERT_EQ(folder.names(), (Names{"x", "set.bin", "set.idx"}));
            std::filesystem::remove(folder / "set.bin");
            std::filesystem::remove(folder / "set.idx");
        } catch (const InputFileError& error) {
            ++refused;
            const std::string message = error.what();
            EXPECT_LT(message.size(), 600U);
            EXPECT_EQ(message.find('\n'), std::string::npos) << message;
            ASSERT_THAT(message,
                        AnyOf(HasSubstr("/x line "), HasSubstr("/x: no text found"),
                              HasSubstr("/x: the gzip data "), HasSubstr("/x: the zstd data "),
                              HasSubstr("/x: is where more than --max-bad-lines 3 lines"),
                              HasSubstr("/x: is not text but ")));
            ASSERT_EQ(folder.names(), Names{"x"}) << message;
        }
    }
    EXPECT_GT(refused, 100);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DamagedInputs, ::testing::Values("jsonl", "gzip", "zstd"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace vocabpipe
