// SPDX-License-Identifier: Apache-2.0
#include "src/step/batch_loader.hpp"

#include "tests/train/numbered_samples.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace vocabpipe {
namespace {

/// Says which threads read it, and fails at one sample. Every sample has a document, positions and
/// weights of its own.
class WatchedSamples final : public testing::NumberedSamples {
public:
    WatchedSamples() : NumberedSamples(4) {}

    [[nodiscard]] SampleForm form() const override {
        return {.weighs_labels = true, .separates_documents = true, .resets_positions = true};
    }

    mutable std::atomic<int> read_by_rank = 0, read_by_thread = 0;
    std::atomic<int64_t> failing = -1;

private:
    void fill(int64_t index, Sample& out) const override {
        ++(std::this_thread::get_id() == rank_ ? read_by_rank : read_by_thread);
        if (index == failing) throw InputFileError("the file is damaged");
        NumberedSamples::fill(index, out);
        for (size_t i = static_cast<size_t>(index % 4); i < 4; ++i) {
            out.first_visible[i] = static_cast<int32_t>(index % 4);
            out.loss_weights[i] = static_cast<float>(index % 7);
        }
    }

    std::thread::id rank_ = std::this_thread::get_id();
};

/// Everything a step reads of a batch.
std::vector<float> contents(const StepBatch& batch) {
    std::vector<float> all{static_cast<float>(batch.counted_tokens())};
    for (const Microbatch& m : batch.microbatches()) {
        all.push_back(static_cast<float>(m.index));
        for (const auto& values : {m.tokens, m.labels, m.first_visible, m.positions}) {
            for (const int32_t value : values) all.push_back(static_cast<float>(value));
        }
        all.insert(all.end(), m.loss_gradient.begin(), m.loss_gradient.end());
    }
    return all;
}

TEST(BatchLoader, GivesTheSameBytesWithAndWithoutPrefetching) {
    const WatchedSamples samples;
    const StepBatchOptions options{.micro_batch_size = 2, .replica = 1, .replicas = 2};
    BatchLoader loader(samples, options);
    StepBatch expected(samples, options);
    int64_t first = 0;
    for (int step = 1; step < 20; ++step) {
        const int microbatches = 1 + step / 5;  // the batch grows
        const StepBatch& batch = loader.load(first, microbatches);
        const int64_t next = first + batch.global_batch_size();
        loader.prefetch(next, 1 + (step + 1) / 5);
        expected.load(first, microbatches);
        ASSERT_EQ(contents(batch), contents(expected)) << step;
        first = next;
    }
}

TEST(BatchLoader, ReadsBesideTheRank) {
    const WatchedSamples samples;
    BatchLoader loader(samples, {.micro_batch_size = 3});
    (void)loader.load(0, 2);
    EXPECT_EQ(samples.read_by_rank, 6);
    loader.prefetch(6, 2);
    (void)loader.load(6, 2);
    EXPECT_EQ(samples.read_by_rank, 6);
    EXPECT_EQ(samples.read_by_thread, 6);
}

TEST(BatchLoader, MakesABatchThatWasNotTheOneAnnounced) {
    const WatchedSamples samples;
    BatchLoader loader(samples, {});
    StepBatch expected(samples, {});
    loader.prefetch(10, 2);
    expected.load(10, 3);
    EXPECT_EQ(contents(loader.load(10, 3)), contents(expected));
    loader.prefetch(20, 2);
    loader.prefetch(30, 1);
    expected.load(30, 1);
    EXPECT_EQ(contents(loader.load(30, 1)), contents(expected));
}

TEST(BatchLoader, KeepsTheBatchOfTheStepWhileTheNextOneIsMade) {
    const WatchedSamples samples;
    BatchLoader loader(samples, {});
    StepBatch expected(samples, {});
    expected.load(0, 4);
    const StepBatch& batch = loader.load(0, 4);
    loader.prefetch(4, 4);
    while (samples.read_by_thread < 4) std::this_thread::yield();
    EXPECT_EQ(contents(batch), contents(expected));
}

TEST(BatchLoader, ThrowsWhatItsThreadThrewWhereTheBatchIsTaken) {
    WatchedSamples samples;
    samples.failing = 5;
    BatchLoader loader(samples, {});
    (void)loader.load(0, 4);
    loader.prefetch(4, 4);
    try {
        (void)loader.load(4, 4);
        FAIL() << "no exception";
    } catch (const InputFileError& error) {
        EXPECT_EQ(std::string(error.what()), "the file is damaged");
    }
    samples.failing = -1;
    StepBatch expected(samples, {});
    expected.load(4, 4);
    EXPECT_EQ(contents(loader.load(4, 4)), contents(expected));
}

TEST(BatchLoader, ForgetsTheFailureOfABatchThatNobodyTakes) {
    WatchedSamples samples;
    samples.failing = 5;
    BatchLoader loader(samples, {});
    loader.prefetch(4, 4);
    EXPECT_NO_THROW((void)loader.load(8, 4));
}

TEST(BatchLoader, EndsWhileItsThreadHasWork) {
    const WatchedSamples samples;
    for (int i = 0; i < 100; ++i) {
        BatchLoader loader(samples, {});
        if (i % 2 == 0) loader.prefetch(0, 50);
    }
}

}  // namespace
}  // namespace vocabpipe
