// SPDX-License-Identifier: Apache-2.0
#include "src/train/prepare/prepare_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/read_all.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/prepare/texts.hpp"
#include "tests/train/text/compress.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/open_tokens.hpp"

namespace vocabpipe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::json_lines;
using testing::message_of;
using testing::read_file;
using testing::TempFolder;
using testing::write_file;
using Names = std::set<std::string>;

std::vector<int32_t> tokens_of(const std::string& prefix) {
    return testing::read_all(*open_tokens(prefix));
}

/// The bytes of documents, each followed by the id that ends it.
std::vector<int32_t> byte_ids(const std::vector<std::string>& documents) {
    std::vector<int32_t> ids;
    for (const std::string& document : documents) {
        for (const char c : document) ids.push_back(static_cast<unsigned char>(c));
        ids.push_back(ByteTokenizer::kEndOfDocument);
    }
    return ids;
}

TEST(PrepareTokens, WritesTheSameBytesForAnyNumberOfWorkers) {
    const TempFolder folder;
    const std::vector<std::string> documents = testing::documents(20'000, 600);
    write_file(folder / "a.jsonl", json_lines(documents));
    write_file(folder / "b.jsonl.gz", testing::gzip(json_lines(documents)));
    std::string plain;
    for (const std::string& document : documents) plain += document + "\n";
    write_file(folder / "c.txt.zst", testing::zstd(plain));
    std::vector<std::string> all;
    for (int i = 0; i < 3; ++i) all.insert(all.end(), documents.begin(), documents.end());

    std::string bin;
    std::string idx;
    for (const int workers : {1, 2, 7}) {
        const std::string output = folder / ("set" + std::to_string(workers));
        const Prepared made = prepare_tokens({.inputs = {{folder / "a.jsonl", "text"},
                                                         {folder / "b.jsonl.gz", "text"},
                                                         {folder / "c.txt.zst"}},
                                              .output = output,
                                              .separator = DocumentSeparator::line,
                                              .workers = workers},
                                             ByteTokenizer());
        EXPECT_EQ(made.totals.documents, static_cast<int64_t>(all.size()));
        EXPECT_EQ(made.text.bytes, static_cast<int64_t>(plain.size())) << "of plain text";
        if (workers == 1) {
            bin = read_file(output + ".bin");
            idx = read_file(output + ".idx");
            EXPECT_EQ(tokens_of(output), byte_ids(all));
        }
        EXPECT_TRUE(read_file(output + ".bin") == bin) << workers;
        EXPECT_TRUE(read_file(output + ".idx") == idx) << workers;
    }
    EXPECT_EQ(folder.names(), (Names{"a.jsonl", "b.jsonl.gz", "c.txt.zst", "set1.bin", "set1.idx",
                                     "set2.bin", "set2.idx", "set7.bin", "set7.idx"}));
}

TEST(PrepareTokens, NamesTheFirstTenBadLinesAndLeavesOutAllUpToTheLimit) {
    const TempFolder folder;
    std::string lines;
    for (int i = 0; i < 30; ++i) {
        lines += i % 2 == 0 ? "{\"text\": \"" + std::to_string(i) + "\"}\n" : "{\"t\": 1}\n";
    }
    write_file(folder / "j.jsonl", lines);
    for (const int workers : {1, 3}) {
        std::vector<std::string> named;
        PreparationOptions options{.inputs = {{folder / "j.jsonl", "text"}},
                                   .output = folder / "set",
                                   .max_bad_lines = 15,
                                   .workers = workers};
        options.bad_line = [&](const std::string& line) { named.push_back(line); };
        const Prepared made = prepare_tokens(options, ByteTokenizer());
        EXPECT_EQ(made.bad_lines, 15);
        EXPECT_EQ(made.totals.documents, 15);
        ASSERT_EQ(named.size(), 10U);
        for (size_t i = 0; i < named.size(); ++i) {
            EXPECT_THAT(named[i], HasSubstr("j.jsonl line " + std::to_string(2 * i + 2) +
                                            ": has no \"text\""));
        }
        std::filesystem::remove(folder / "set.bin");
        std::filesystem::remove(folder / "set.idx");
        options.max_bad_lines = 14;
        EXPECT_THAT(
            message_of<InputFileError>([&] { (void)prepare_tokens(options, ByteTokenizer()); }),
            HasSubstr("j.jsonl: is where more than --max-bad-lines 14 lines had no "
                      "document"));
        options.max_bad_lines = 0;
        EXPECT_THAT(
            message_of<InputFileError>([&] { (void)prepare_tokens(options, ByteTokenizer()); }),
            HasSubstr("j.jsonl line 2: has no \"text\""));
        EXPECT_EQ(folder.names(), Names{"j.jsonl"});
    }
}

TEST(PrepareTokens, ReportsTheFirstErrorOfTheTextWhateverTheWorkers) {
    const TempFolder folder;
    write_file(folder / "good.jsonl", json_lines(testing::documents(20'000, 600)));
    const std::string zipped = testing::gzip(json_lines(testing::documents(20'000, 600)));
    write_file(folder / "cut.gz", zipped.substr(0, zipped.size() - 9));
    write_file(folder / "bad.jsonl", "{}\n");
    for (const int workers : {1, 5}) {
        const PreparationOptions options{.inputs = {{folder / "good.jsonl", "text"},
                                                    {folder / "cut.gz", "text"},
                                                    {folder / "bad.jsonl", "text"}},
                                         .output = folder / "set",
                                         .workers = workers};
        EXPECT_THAT(
            message_of<InputFileError>([&] { (void)prepare_tokens(options, ByteTokenizer()); }),
            HasSubstr("cut.gz: the gzip data is cut off"));
    }
    EXPECT_EQ(folder.names(), (Names{"good.jsonl", "cut.gz", "bad.jsonl"}));
}

TEST(PrepareTokens, CutsADocumentOfManyPiecesNowhere) {
    const TempFolder folder;
    std::string document;
    for (int i = 0; document.size() < size_t{5} << 20; ++i) document += std::to_string(i) + "\n";
    write_file(folder / "j.jsonl", json_lines({document, "", "short"}));
    write_file(folder / "t.txt", document);
    const Prepared made =
        prepare_tokens({.inputs = {{folder / "j.jsonl", "text"}, {folder / "t.txt"}},
                        .output = folder / "set",
                        .workers = 2},
                       ByteTokenizer());
    EXPECT_EQ(made.totals.documents, 3) << "an empty text is no document";
    EXPECT_EQ(tokens_of(folder / "set"), byte_ids({document, "short", document}));
    const auto set = open_tokens(folder / "set");
    EXPECT_EQ(set->document_start(1), static_cast<int64_t>(document.size()) + 1);
    EXPECT_EQ(set->document_start(2), static_cast<int64_t>(document.size()) + 7);
}

TEST(PrepareTokens, EndsWhenItsPollThrowsAndLeavesNothing) {
    const TempFolder folder;
    write_file(folder / "j.jsonl", json_lines(testing::documents(50'000, 600)));
    struct Stop {};
    int polls = 0;
    const PreparationOptions options{.inputs = {{folder / "j.jsonl", "text"}},
                                     .output = folder / "set",
                                     .workers = 3,
                                     .state_every = std::chrono::milliseconds(0),
                                     .poll = [&] {
                                         if (++polls > 5) throw Stop();
                                     }};
    EXPECT_THROW((void)prepare_tokens(options, ByteTokenizer()), Stop);
    EXPECT_EQ(folder.names(), Names{"j.jsonl"});
}

}  // namespace
}  // namespace vocabpipe
