// SPDX-License-Identifier: Apache-2.0
// Files of columns: what they must have, and which numbers a sample gets.
#include "src/train/select/columns_file.hpp"

#include "tests/train/data/expect_error.hpp"
#include "tests/train/select/columns_of.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FileOfColumns : public ::testing::Test {
protected:
    FileOfColumns() {
        float next = 0;
        for (const char* name : {"advantages", "old_log_probs", "loss_weights"}) {
            columns_.fill(name, 0);
            for (float& value : columns_.values[name]) value = next++;
        }
    }
    [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
    [[nodiscard]] ColumnsFile open(const std::string& name, int64_t samples = 3,
                                   int64_t seq_length = 2) const {
        return {"--columns", path(name),
                ColumnsWanted{.columns = {{.name = "advantages"}, {.name = "old_log_probs"}},
                              .known = {"advantages", "old_log_probs", "ref_log_prob"},
                              .samples = samples,
                              .seq_length = seq_length}};
    }
    /// What a changed file is refused with.
    std::string refusal(const std::function<void(Columns&)>& change) {
        Columns changed = columns_;
        change(changed);
        changed.write(path("changed.safetensors"));
        return message_of<InputFileError>([&] { open("changed.safetensors").check(1 << 20); });
    }

    TempFolder folder_;
    Columns columns_{.samples = 3, .seq_length = 2, .values = {}};
};

TEST_F(FileOfColumns, GivesEverySampleItsRowInBothFormats) {
    columns_.write(path("a.safetensors"));
    columns_.write_npy(path("a.npy"), {"advantages", "old_log_probs", "loss_weights"});
    for (const std::string name : {"a.safetensors", "a.npy"}) {
        SCOPED_TRACE(name);
        const ColumnsFile file = open(name);
        EXPECT_EQ(file.form().columns, 2);
        EXPECT_TRUE(file.form().weighs_labels);
        Sample sample(2);
        sample.loss_weights = {1, 0.5F};
        file.add(1, sample);
        EXPECT_THAT(sample.columns, ElementsAre(2, 3, 8, 9));
        EXPECT_THAT(sample.loss_weights, ElementsAre(14, 7.5F));
    }
    EXPECT_EQ(open("a.safetensors").identity(), open("a.npy").identity());
}

/// Lists of two entries for 3 samples of 2 tokens.
class FileOfLists : public FileOfColumns {
protected:
    FileOfLists() {
        for (int i = 0; i < 12; ++i) {
            lists_.lists["top_logprobs"].push_back(-0.5F * static_cast<float>(i));
            lists_.ids["top_ids"].push_back(i - 1);
        }
        lists_.lists["top_logprobs"][0] = -INFINITY;
        lists_.fill("logprob", 0);  // a record that score writes beside the list
    }
    [[nodiscard]] ColumnsFile open_lists(const std::string& name, int64_t count = 2) const {
        return {
            "--columns", path(name),
            ColumnsWanted{
                .columns = {{.name = "top_logprobs", .kind = ColumnKind::logprob, .count = count},
                            {.name = "top_ids", .kind = ColumnKind::id, .count = count}},
                .known = {"logprob"},
                .samples = 3,
                .seq_length = 2,
                .vocab_size = 11}};
    }
    std::string refusal_of_lists(const std::function<void(Columns&)>& change) {
        Columns changed = lists_;
        change(changed);
        changed.write(path("changed.safetensors"));
        return message_of<InputFileError>(
            [&] { open_lists("changed.safetensors").check(1 << 20); });
    }
    Columns lists_{.samples = 3, .seq_length = 2, .values = {}};
};

TEST_F(FileOfLists, GivesEveryTokenItsListInBothFormats) {
    lists_.write(path("a.safetensors"));
    Columns planes{.samples = 3, .seq_length = 2, .values = {}};
    for (size_t c = 0; c < 2; ++c) {
        for (size_t n = 0; n < 6; ++n) {
            planes.values["log" + std::to_string(c)].push_back(
                lists_.lists["top_logprobs"][2 * n + c]);
            planes.values["id" + std::to_string(c)].push_back(
                static_cast<float>(lists_.ids["top_ids"][2 * n + c]));
        }
    }
    planes.write_npy(path("a.npy"), {"log0", "log1", "id0", "id1"});
    for (const std::string name : {"a.safetensors", "a.npy"}) {
        SCOPED_TRACE(name);
        const ColumnsFile file = open_lists(name);
        EXPECT_EQ(file.form().columns, 4);
        Sample sample(2);
        file.add(1, sample);
        EXPECT_THAT(sample.columns, ElementsAre(-2, -3, -2.5F, -3.5F, 3, 5, 4, 6));
        file.check(1 << 20);
    }
    EXPECT_EQ(open_lists("a.safetensors").identity(), open_lists("a.npy").identity());
}

TEST_F(FileOfLists, IsRefusedWithNumbersThatAreNoList) {
    EXPECT_THAT(refusal_of_lists([](Columns& c) { c.lists["top_logprobs"][4] = std::nanf(""); }),
                HasSubstr("top_logprobs of sample 1, token 0 is nan, but it must be a number"));
    EXPECT_THAT(refusal_of_lists([](Columns& c) { c.ids["top_ids"][7] = 11; }),
                HasSubstr("top_ids of sample 1, token 1 is 11.000000, but it must be a token from "
                          "0 to 10, or -1"));
    EXPECT_THAT(refusal_of_lists([](Columns& c) { c.ids.clear(); }),
                HasSubstr("tensor top_ids is missing; --loss reads 2 top_logprobs, 2 top_ids"));
    lists_.write(path("a.safetensors"));
    EXPECT_THAT(message_of<InputFileError>([&] { (void)open_lists("a.safetensors", 3); }),
                HasSubstr("tensor top_logprobs: is F32 [3, 2, 2]; it must be F32 [3, 2, 3], the "
                          "samples and --seq-length of the training data, and --kd-top-k"));
}

TEST_F(FileOfColumns, LeavesWeightsAloneThatItDoesNotHave) {
    columns_.write_npy(path("a.npy"), {"advantages", "old_log_probs"});
    const ColumnsFile file = open("a.npy");
    EXPECT_FALSE(file.form().weighs_labels);
    Sample sample(2);
    file.add(2, sample);
    EXPECT_THAT(sample.loss_weights, ElementsAre(1, 1));
}

TEST_F(FileOfColumns, IsAnotherOneAfterAnyNumberChanged) {
    columns_.write(path("a.safetensors"));
    columns_.values["loss_weights"].back() += 1;
    columns_.write(path("b.safetensors"));
    EXPECT_NE(open("a.safetensors").identity(), open("b.safetensors").identity());
}

TEST_F(FileOfColumns, MayHaveColumnsOfOtherLossesButNoneThatNoLossReads) {
    columns_.fill("ref_log_prob", 0);
    columns_.write(path("a.safetensors"));
    EXPECT_NO_THROW((void)open("a.safetensors"));
    EXPECT_THAT(refusal([](Columns& c) { c.fill("loss_weight", 1); }),
                HasSubstr("tensor loss_weight: no loss reads it; there are advantages, "
                          "old_log_probs, ref_log_prob and loss_weights"));
}

TEST_F(FileOfColumns, IsRefusedWithoutAColumnOrWithAnotherShape) {
    EXPECT_THAT(refusal([](Columns& c) { c.values.erase("old_log_probs"); }),
                HasSubstr("tensor old_log_probs is missing; --loss reads advantages, "
                          "old_log_probs"));
    columns_.write(path("a.safetensors"));
    EXPECT_THAT(message_of<InputFileError>([&] { (void)open("a.safetensors", 4); }),
                HasSubstr("it must be F32 [4, 2], the samples and --seq-length"));
    EXPECT_THAT(message_of<InputFileError>([&] { (void)open("a.safetensors", 2, 3); }),
                HasSubstr("is F32 [3, 2]; it must be F32 [2, 3]"));
    columns_.write_npy(path("one.npy"), {"advantages"});
    EXPECT_THAT(message_of<InputFileError>([&] { (void)open("one.npy"); }),
                HasSubstr("is <f4 [1, 3, 2]; it must be <f4 [2, 3, 2] of advantages, "
                          "old_log_probs, and loss_weights if given"));
}

TEST_F(FileOfColumns, IsRefusedIfItWasCutShort) {
    columns_.write(path("a.safetensors"));
    columns_.write_npy(path("a.npy"), {"advantages", "old_log_probs"});
    for (const std::string name : {"a.safetensors", "a.npy"}) {
        std::filesystem::resize_file(path(name), std::filesystem::file_size(path(name)) - 1);
        EXPECT_THAT(message_of<InputFileError>([&] { (void)open(name); }), HasSubstr(name));
    }
}

TEST_F(FileOfColumns, IsAnErrorWhenItIsCutShortLater) {
    columns_.write(path("a.safetensors"));
    const ColumnsFile file = open("a.safetensors");
    std::filesystem::resize_file(path("a.safetensors"), 100);
    Sample sample(2);
    EXPECT_THAT(message_of<InputFileError>([&] { file.add(2, sample); }),
                HasSubstr("a.safetensors"));
}

TEST_F(FileOfColumns, SaysWhichNumberIsWrong) {
    EXPECT_THAT(refusal([](Columns& c) { c.values["advantages"][3] = std::nanf(""); }),
                HasSubstr("changed.safetensors: advantages of sample 1, token 1 is nan, but it "
                          "must be finite"));
    EXPECT_THAT(refusal([](Columns& c) {
                    c.values["old_log_probs"][4] = -std::numeric_limits<float>::infinity();
                }),
                HasSubstr("old_log_probs of sample 2, token 0 is -inf"));
    EXPECT_THAT(refusal([](Columns& c) { c.values["loss_weights"][0] = -1; }),
                HasSubstr("loss_weights of sample 0, token 0 is -1.000000, but it must be finite "
                          "and not negative"));
}

}  // namespace
}  // namespace vocabpipe::testing
