// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <tuple>

#include "src/train/data/megatron_reader.hpp"
#include "src/train/data/megatron_writer.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/read_all.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/data/worked_example.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/open_tokens.hpp"

namespace vocabpipe {
namespace {

using testing::bytes_of;
using testing::read_all;
using testing::TempFolder;

void write_example(const std::string& prefix, int64_t vocab_size) {
    MegatronWriter writer(prefix, vocab_size);
    for (const auto& document : testing::kExampleDocuments) {
        writer.append(document);
        writer.end_document();
    }
    writer.finish();
}

TEST(MegatronWriter, WritesTheWorkedExampleByteForByte) {
    const TempFolder folder;
    write_example(folder / "set", 50257);
    EXPECT_EQ(testing::read_file(folder / "set.idx"), testing::example_idx());
    EXPECT_EQ(testing::read_file(folder / "set.bin"), testing::example_bin());
    EXPECT_EQ(folder.names(), (std::set<std::string>{"set.bin", "set.idx"}));
}

TEST(MegatronWriter, ReportsTotals) {
    const TempFolder folder;
    MegatronWriter writer(folder / "set", 300);
    writer.append(std::vector<int32_t>{1, 2, 3});
    writer.append(std::vector<int32_t>{299});
    writer.end_document();
    writer.end_document();                   // an empty document
    writer.append(std::vector<int32_t>{7});  // ended by finish()
    const MegatronTotals totals = writer.finish();
    EXPECT_EQ(totals.documents, 3);
    EXPECT_EQ(totals.tokens, 5);
    EXPECT_EQ(totals.type, TokenType::u16);
    EXPECT_EQ(totals.bytes, 10 + 34 + 12 * 2 + 8 * 4);
    const auto source = open_megatron(folder / "set");
    EXPECT_EQ(source->info().documents, 3);
    EXPECT_EQ(source->info().sequences, 2);
    EXPECT_EQ(read_all(*source), (std::vector<int32_t>{1, 2, 3, 299, 7}));
}

TEST(MegatronWriter, ChoosesThirtyTwoBitsFromAVocabularyOf65500On) {
    for (const auto& [vocab_size, type] :
         {std::pair{65499, TokenType::u16}, std::pair{65500, TokenType::i32},
          std::pair{200000, TokenType::i32}}) {
        const TempFolder folder;
        write_example(folder / "set", vocab_size);
        const auto source = open_megatron(folder / "set");
        EXPECT_EQ(source->info().type, type) << vocab_size;
        EXPECT_EQ(read_all(*source), (std::vector<int32_t>{5, 6, 7, 50256, 8, 9, 50256}));
    }
}

TEST(MegatronWriter, RefusesIdsAndVocabulariesThatDoNotFit) {
    const TempFolder folder;
    {
        MegatronWriter writer(folder / "set", 10);
        EXPECT_THROW(writer.append(std::vector<int32_t>{10}), std::invalid_argument);
        EXPECT_THROW(writer.append(std::vector<int32_t>{-1}), std::invalid_argument);
    }
    EXPECT_THROW(MegatronWriter(folder / "set", 0), UsageError);
    EXPECT_THROW(MegatronWriter(folder / "set", int64_t{1} << 31), UsageError);
    EXPECT_TRUE(folder.names().empty());
}

TEST(MegatronReader, ReadsTheWorkedExampleByPrefixAndByEitherFile) {
    const TempFolder folder;
    testing::write_file(folder / "set.idx", testing::example_idx());
    testing::write_file(folder / "set.bin", testing::example_bin());
    for (const char* name : {"set", "set.idx", "set.bin"}) {
        const auto source = open_tokens(folder / name);
        EXPECT_EQ(read_all(*source), (std::vector<int32_t>{5, 6, 7, 50256, 8, 9, 50256})) << name;
        EXPECT_EQ(source->info().documents, 2);
        EXPECT_EQ(source->info().type, TokenType::u16);
        EXPECT_EQ(source->info().name, folder / "set");
        EXPECT_EQ(source->place(6).position, 6);
        EXPECT_EQ(source->place(6).file, folder / "set.bin");
    }
}

TEST(MegatronReader, ReadsAnyRangeAndRefusesOthers) {
    const TempFolder folder;
    write_example(folder / "set", 50257);
    const auto source = open_megatron(folder / "set");
    std::vector<int32_t> two(2);
    source->read(3, two);
    EXPECT_EQ(two, (std::vector<int32_t>{50256, 8}));
    source->read(7, {});
    EXPECT_THROW(source->read(6, two), std::out_of_range);
    EXPECT_THROW(source->read(-1, two), std::out_of_range);
    EXPECT_THROW(source->read(std::numeric_limits<int64_t>::max(), two), std::out_of_range);
    EXPECT_THROW((void)source->place(7), std::out_of_range);
}

/// An .idx with one document of one sequence of three tokens.
std::string small_idx(uint8_t type) {
    return testing::example_idx().substr(0, 17) + bytes_of<uint8_t>({type}) +
           bytes_of<uint64_t>({1, 2}) + bytes_of<int32_t>({3}) + bytes_of<int64_t>({0}) +
           bytes_of<int64_t>({0, 1});
}

TEST(MegatronReader, ReadsEveryIntegerType) {
    const std::vector<std::tuple<uint8_t, std::string, std::string>> table{
        {1, "u8", bytes_of<uint8_t>({1, 127, 255})},
        {2, "i8", bytes_of<int8_t>({1, 127, -1})},
        {3, "i16", bytes_of<int16_t>({1, 127, -1})},
        {4, "i32", bytes_of<int32_t>({1, 127, 2147483647})},
        {5, "i64", bytes_of<int64_t>({1, 127, 2147483647})},
        {8, "u16", bytes_of<uint16_t>({1, 127, 65535})},
    };
    const std::vector<int32_t> last{255, -1, -1, 2147483647, 2147483647, 65535};
    for (size_t i = 0; i < table.size(); ++i) {
        const auto& [type, name, bin] = table[i];
        const TempFolder folder;
        testing::write_file(folder / "set.idx", small_idx(type));
        testing::write_file(folder / "set.bin", bin);
        const auto source = open_megatron(folder / "set");
        EXPECT_EQ(token_type_name(source->info().type), name);
        EXPECT_EQ(read_all(*source), (std::vector<int32_t>{1, 127, last[i]})) << name;
    }
}

TEST(MegatronReader, NamesAValueThatIsNoThirtyTwoBitId) {
    const TempFolder folder;
    testing::write_file(folder / "set.idx", small_idx(5));
    testing::write_file(folder / "set.bin", bytes_of<int64_t>({1, 2, int64_t{1} << 40}));
    const auto source = open_megatron(folder / "set");
    const auto message = testing::message_of<InputFileError>([&] { (void)read_all(*source); });
    EXPECT_THAT(message, ::testing::HasSubstr("set.bin: token 2 is 1099511627776"));
}

TEST(MegatronReader, ReadsDocumentsOfSeveralSequencesAndEmptyOnes) {
    const TempFolder folder;
    testing::write_file(folder / "set.idx",
                        testing::example_idx().substr(0, 18) + bytes_of<uint64_t>({3, 4}) +
                            bytes_of<int32_t>({2, 0, 1}) + bytes_of<int64_t>({0, 4, 4}) +
                            bytes_of<int64_t>({0, 2, 2, 3}));
    testing::write_file(folder / "set.bin", bytes_of<uint16_t>({1, 2, 3}));
    const auto source = open_megatron(folder / "set");
    EXPECT_EQ(source->info().documents, 3);
    EXPECT_EQ(source->info().sequences, 3);
    EXPECT_EQ(read_all(*source), (std::vector<int32_t>{1, 2, 3}));
}

TEST(MegatronReader, ReadsASetWithoutDocuments) {
    const TempFolder folder;
    MegatronWriter(folder / "set", 10).finish();
    const auto source = open_megatron(folder / "set");
    EXPECT_EQ(source->size(), 0);
    EXPECT_EQ(source->info().documents, 0);
}

TEST(MegatronReader, AcceptsModesOfTextAndRefusesOtherModes) {
    const TempFolder folder;
    testing::write_file(folder / "set.bin", testing::example_bin());
    testing::write_file(folder / "set.idx", testing::example_idx() + std::string(2, '\0'));
    EXPECT_EQ(open_megatron(folder / "set")->size(), 7);
    testing::write_file(folder / "set.idx", testing::example_idx() + std::string("\0\1", 2));
    EXPECT_THAT(testing::message_of<InputFileError>([&] { (void)open_megatron(folder / "set"); }),
                ::testing::HasSubstr("multimodal"));
}

}  // namespace
}  // namespace vocabpipe
