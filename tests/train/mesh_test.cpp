// SPDX-License-Identifier: Apache-2.0
// Meshes of pipelines and replicas: the bits of the single-rank oracle, replica by replica.
#include "vocabpipe/mesh.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/support/schedule_cases.hpp"
#include "tests/train/training_run.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <string>

namespace vocabpipe::testing {
namespace {

struct Cell {
    std::string schedule;
    VocabMode mode;
    Mesh mesh;
    friend void PrintTo(const Cell& c, std::ostream* out) {
        *out << c.schedule << " " << to_string(c.mode) << " p=" << c.mesh.pipeline
             << " d=" << c.mesh.data;
    }
};

/// Every family twice over; one with a full backward, split ones, V placement and several stages
/// per rank in other meshes, too.
std::vector<Cell> cells() {
    constexpr std::array kModes{VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
                                VocabMode::one_barrier, VocabMode::two_barriers};
    std::vector<Cell> all;
    for (const VocabMode mode : kModes) {
        for (const Generator& family : generators()) {
            all.push_back({std::string(family.name), mode, {2, 2}});
        }
        for (const char* schedule : {"1f1b", "zb-h1", "v-half", "interleaved"}) {
            for (const Mesh mesh : {Mesh{1, 2}, Mesh{1, 3}, Mesh{3, 2}, Mesh{2, 3}}) {
                all.push_back({schedule, mode, mesh});
            }
        }
    }
    return all;
}

TrainingSetup setup_of(const Cell& cell, DType dtype, bool tied, int steps) {
    const Schedule schedule = make_schedule(cell.schedule, {.ranks = cell.mesh.pipeline,
                                                            .microbatches = 2,
                                                            .vocab_mode = cell.mode,
                                                            .vocab_size = 29});
    TrainingSetup setup{.config = small_family("gpt2", schedule.stages + 1, 7, 29, tied),
                        .family = cell.schedule,
                        .ranks = cell.mesh.pipeline,
                        .replicas = cell.mesh.data,
                        .microbatches = 2,
                        .mode = cell.mode,
                        .steps = steps};
    setup.config.dtype = dtype;
    return setup;
}

/// The oracle's gradients of every replica's microbatches, added up in the order of the replicas.
std::map<std::string, std::vector<float>> expected_gradients(const TrainingSetup& setup) {
    const Schedule schedule = make_schedule(setup.family, {.ranks = setup.ranks,
                                                           .microbatches = setup.microbatches,
                                                           .vocab_mode = setup.mode,
                                                           .vocab_size = setup.config.vocab_size});
    ModelPartition partition = even_partition(setup.config, schedule, setup.sequences);
    const Batch batch = toy_batch(setup, 1);
    std::map<std::string, std::vector<float>> sum;
    for (int replica = 0; replica < setup.replicas; ++replica) {
        Gradients part = run_single_rank(setup.config, partition, schedule,
                                         part_of(batch, replica, setup.replicas), setup.seed);
        const std::string suffix = " (output)";
        for (auto& [name, values] : part.by_name) {
            if (name.ends_with(suffix)) continue;
            const auto output = part.by_name.find(name + suffix);
            std::vector<float>& into = sum[name];
            into.resize(values.size());
            for (size_t i = 0; i < values.size(); ++i) {
                float value = values[i];
                if (output != part.by_name.end()) value += output->second[i];
                into[i] = replica == 0 ? value : into[i] + value;
            }
        }
    }
    return sum;
}

void expect_oracles_gradients(const TrainingSetup& setup) {
    const auto expected = expected_gradients(setup);
    const Training run = train_on_threads(setup);
    double squares = 0;
    for (const auto& [name, want] : expected) {
        const auto got = run.gradients.find(name);
        ASSERT_NE(got, run.gradients.end()) << name;
        ASSERT_EQ(got->second.size(), want.size()) << name;
        EXPECT_EQ(std::memcmp(got->second.data(), want.data(), want.size() * 4), 0) << name;
        for (const float value : want) squares += double{value} * value;
    }
    EXPECT_NEAR(run.grad_norms.front(), std::sqrt(squares), 1e-9 * std::sqrt(squares));
}

class Meshes : public ::testing::TestWithParam<Cell> {};

TEST_P(Meshes, ReduceToTheOraclesGradientsAddedInReplicaOrder) {
    for (const bool tied : {false, true}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            SCOPED_TRACE(::testing::Message() << (tied ? "tied " : "untied ") << size_of(dtype));
            expect_oracles_gradients(setup_of(GetParam(), dtype, tied, 1));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Meshes, ::testing::ValuesIn(cells()), [](const auto& info) {
    const Cell& c = info.param;
    return test_name(c.schedule + "_" + std::string(to_string(c.mode)) + "_p" +
                     std::to_string(c.mesh.pipeline) + "_d" + std::to_string(c.mesh.data));
});

TEST(Mesh, ReducesALargeBucketByPieces) {
    TrainingSetup setup = setup_of({"1f1b", VocabMode::none, {1, 2}}, DType::bf16, true, 1);
    setup.config.vocab_size = 1'600'001;  // of 16 columns: three pieces of 8 Mi elements
    setup.config.seq_length = 3;
    setup.microbatches = 1;
    setup.sequences = 1;
    for (const int64_t piece : {int64_t{1} << 23, kBucketPieceOfHosts}) {
        setup.bucket_piece = piece;
        expect_oracles_gradients(setup);
    }
}

// Shorter than a row, so that some members have no part of a piece.
TEST(Mesh, ReducesEveryBucketByManyPieces) {
    for (const char* schedule : {"1f1b", "zb-h1", "interleaved"}) {
        for (const Mesh mesh : {Mesh{1, 2}, Mesh{2, 3}}) {
            TrainingSetup setup =
                setup_of({schedule, VocabMode::one_barrier, mesh}, DType::bf16, true, 1);
            setup.bucket_piece = 40;
            expect_oracles_gradients(setup);
        }
    }
}

TEST(Mesh, WithoutShardingTrainsToTheSameBitsWhateverP) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        const Cell alone{"1f1b", VocabMode::none, {1, 2}};
        const TrainingSetup setup = setup_of({"1f1b", VocabMode::none, {3, 2}}, dtype, true, 5);
        TrainingSetup one = setup;
        one.ranks = alone.mesh.pipeline;
        const Training expected = train_on_threads(one);
        EXPECT_EQ(first_difference(expected, train_on_threads(setup)), "");
    }
}

TEST(Mesh, TrainsToTheSameBitsWithAnyBarriers) {
    const Training expected =
        train_on_threads(setup_of({"1f1b", VocabMode::one_barrier, {2, 2}}, DType::bf16, true, 5));
    for (const VocabMode mode : {VocabMode::interlaced, VocabMode::two_barriers}) {
        EXPECT_EQ(first_difference(expected, train_on_threads(setup_of({"1f1b", mode, {2, 2}},
                                                                       DType::bf16, true, 5))),
                  "");
    }
}

TEST(Mesh, TrainsLikeOnePipelineOnTheWholeBatch) {
    TrainingSetup setup = setup_of({"1f1b", VocabMode::one_barrier, {2, 3}}, DType::fp32, true, 5);
    const Training replicas = train_on_threads(setup);
    setup.microbatches *= setup.replicas;
    setup.replicas = 1;
    const Training alone = train_on_threads(setup);
    for (size_t step = 0; step < alone.losses.size(); ++step) {
        EXPECT_NEAR(replicas.losses[step], alone.losses[step], 2e-5) << step;
        EXPECT_NEAR(replicas.grad_norms[step], alone.grad_norms[step], 1e-4) << step;
    }
}

}  // namespace
}  // namespace vocabpipe::testing
