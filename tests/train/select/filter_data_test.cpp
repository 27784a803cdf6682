// SPDX-License-Identifier: Apache-2.0
// Copies of chosen samples and of their documents, read back.
#include "src/train/select/filter_data.hpp"

#include "src/train/data/megatron_writer.hpp"
#include "src/train/select/chosen_samples.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/read_all.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/select/subset_of.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/open_tokens.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStride = 4;

class FilterData : public ::testing::Test {
protected:
    /// Documents of these lengths; token i of the file is first + i.
    std::string indexed_file(const std::string& name, const std::vector<int>& lengths,
                             int32_t first) {
        MegatronWriter writer(folder_ / name, 70000);
        for (const int length : lengths) {
            std::vector<int32_t> document;
            for (int i = 0; i < length; ++i) document.push_back(first++);
            writer.append(document);
            writer.end_document();
        }
        writer.finish();
        return folder_ / name;
    }
    FilterOptions options_of(const DataOptions& data, const std::vector<int64_t>& chosen) {
        const std::string path = folder_ / "subset";
        write_subset_file(path, training_corpus(TrainingData(data), kStride), chosen);
        return {.data = data,
                .seq_length = kStride,
                .subset = path,
                .output = folder_ / "copy",
                .ids = {},
                .poll = {},
                .progress = {}};
    }
    TempFolder folder_;
};

TEST_F(FilterData, CopiesInputsOfChosenSamplesWhichTheSameStrideCutsAgain) {
    const DataOptions data{.path = {indexed_file("corpus", {7, 0, 3, 21, 10}, 100)}};
    FilterOptions options = options_of(data, {1, 2, 5, 9});  // of 10
    const FilterTotals totals = filter_data(options);
    EXPECT_EQ(totals.samples, 4);
    EXPECT_EQ(totals.tokens, 17);
    const std::shared_ptr<const TokenSource> copy =
        open_tokens(options.output, DataFormat::automatic);
    EXPECT_EQ(copy->info().documents, 4);
    EXPECT_EQ(read_all(*copy), (std::vector<int32_t>{104, 105, 106, 107, 108, 109, 110, 111, 120,
                                                     121, 122, 123, 136, 137, 138, 139, 140}));
    const TokenDataset samples(copy, {.seq_length = kStride, .shuffle = false});
    EXPECT_EQ(samples.samples_per_epoch(), 4);

    // Again over its own output.
    EXPECT_EQ(filter_data(options).tokens, 17);
    options.llmc = true;
    options.output = folder_ / "shard";
    EXPECT_EQ(filter_data(options).tokens, 17);
    const auto shard = open_tokens(folder_ / "shard.bin", DataFormat::automatic);
    EXPECT_THAT(shard->info().format, HasSubstr("GPT-2"));
    EXPECT_EQ(read_all(*shard), read_all(*copy));
}

TEST_F(FilterData, CopiesTheLossWeightsOfTheTokens) {
    const std::string plain = indexed_file("plain", {9, 12}, 300);
    MegatronWriter writer(folder_ / "weighed", 1000, LossWeightType::u8);
    for (int i = 0; i < 20; ++i) {
        writer.append(std::vector<int32_t>{100 + i}, std::vector<float>{static_cast<float>(i)});
    }
    writer.finish();
    FilterOptions options = options_of({.path = {"1", plain, "1", folder_ / "weighed"}}, {1, 5, 7});
    EXPECT_EQ(filter_data(options).tokens, 13);
    const auto copy = open_tokens(options.output);
    const std::vector<float> weights = testing::read_all_weights(*copy);
    const std::vector<int32_t> tokens = read_all(*copy);
    for (size_t i = 0; i < 13; ++i) {
        EXPECT_EQ(weights[i], tokens[i] < 300 ? static_cast<float>(tokens[i] - 100) : 1.0F) << i;
    }
    options.llmc = true;
    EXPECT_THAT(message_of<UsageError>([&] { (void)filter_data(options); }),
                HasSubstr("--format llmc: the data have loss weights"));
}

TEST_F(FilterData, TakesWideIdsInEitherForm) {
    const DataOptions data{.path = {indexed_file("corpus", {41}, 65520)}};
    FilterOptions options = options_of(data, {0, 9});
    EXPECT_EQ(filter_data(options).type, TokenType::i32);
    options.llmc = true;
    options.output = folder_ / "shard";
    EXPECT_EQ(filter_data(options).type, TokenType::u32);
    EXPECT_EQ(read_all(*open_tokens(folder_ / "shard.bin", DataFormat::automatic)),
              read_all(*open_tokens(folder_ / "copy", DataFormat::automatic)));
}

TEST_F(FilterData, CopiesWholeDocumentsAndListsThem) {
    // Begin at tokens 0, 7, 7, 10, 31.
    const DataOptions data{.path = {indexed_file("corpus", {7, 0, 3, 21, 10}, 100)}};
    FilterOptions options = options_of(data, {1, 8});  // tokens 4 to 7 and 32 to 35
    options.documents = true;
    options.ids = folder_ / "ids";
    const FilterTotals totals = filter_data(options);
    EXPECT_EQ(totals.documents, 3);
    EXPECT_EQ(read_file(options.ids), "0\n2\n4\n");
    const auto copy = open_tokens(options.output, DataFormat::automatic);
    EXPECT_EQ(copy->info().documents, 3);
    EXPECT_EQ(copy->size(), 7 + 3 + 10);
    EXPECT_EQ(read_all(*copy)[7], 107);
    EXPECT_EQ(read_all(*copy)[10], 131);
}

TEST_F(FilterData, NumbersDocumentsBySetAndLooksAtTheTrainingPart) {
    const DataOptions data{.path = {"1", indexed_file("a", {10, 10, 10, 10, 10}, 100), "2",
                                    indexed_file("b", {10, 10, 10, 10, 10}, 1000)},
                           .split = "80,20,0"};
    // 40 tokens each: samples 0 to 8, and 9 to 17.
    FilterOptions options = options_of(data, {0, 9, 17});
    options.output.clear();
    options.ids = folder_ / "ids";
    EXPECT_EQ(filter_data(options).documents, 3);
    EXPECT_EQ(read_file(options.ids), "0 0\n1 0\n1 3\n");
    options.output = folder_ / "copy";
    options.ids.clear();
    (void)filter_data(options);
    EXPECT_EQ(read_all(*open_tokens(options.output, DataFormat::automatic)),
              (std::vector<int32_t>{100, 101, 102, 103, 1000, 1001, 1002, 1003, 1032, 1033, 1034,
                                    1035, 1036}));
}

TEST_F(FilterData, LeavesNothingHalfWrittenAndReplacesNoInput) {
    const DataOptions data{.path = {indexed_file("corpus", {41}, 0)}};
    FilterOptions options = options_of(data, {0, 5});
    options.ids = folder_ / "ids";
    const auto before = folder_.names();
    int calls = 0;
    options.poll = [&] {
        if (++calls == 4) throw std::runtime_error("stop");
    };
    EXPECT_THROW((void)filter_data(options), std::runtime_error);
    EXPECT_EQ(folder_.names(), before);
    options.poll = {};
    options.output = folder_ / "corpus";
    EXPECT_THAT(message_of<UsageError>([&] { (void)filter_data(options); }),
                HasSubstr("--output " + options.output + ".bin: is also an input"));
    options.output = folder_ / "copy";
    options.ids = options.subset;
    EXPECT_THAT(message_of<UsageError>([&] { (void)filter_data(options); }),
                HasSubstr("--ids " + options.ids + ": is also an input"));
    options.ids = folder_ / "notes";
    write_file(options.ids, "my notes");
    EXPECT_THAT(message_of<UsageError>([&] { (void)filter_data(options); }),
                HasSubstr("already exists, and nothing in it says who wrote it"));
}

TEST_F(FilterData, RefusesOtherDataAndDocumentsThatNobodyKnows) {
    const DataOptions data{.path = {indexed_file("corpus", {41}, 0)}};
    FilterOptions options = options_of(data, {0, 5});
    options.seq_length = 5;
    EXPECT_THAT(message_of<InputFileError>([&] { (void)filter_data(options); }),
                HasSubstr("--subset " + options.subset + ": was chosen from samples of 4 tokens"));
    write_file(folder_ / "raw.bin", std::string(82, 'a'));
    const DataOptions raw{.path = {folder_ / "raw.bin"}, .format = "raw-u16"};
    options = options_of(raw, {0, 5});
    options.documents = true;
    EXPECT_THAT(message_of<UsageError>([&] { (void)filter_data(options); }),
                HasSubstr("does not say where documents begin"));
}

}  // namespace
}  // namespace vocabpipe::testing
