// SPDX-License-Identifier: Apache-2.0
// Selection by the public interface: graphs in memory and in files, any number of ranks, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "src/select/files/subset_file.hpp"
#include "tests/select/run_selection.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/neighbour_graph.hpp"
#include "vocabpipe/select_samples.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kOne = 1 << 20;  // of fixed-point numbers

std::vector<WeightedEdge> edges_of(const SelectProblem& problem) {
    std::vector<WeightedEdge> edges;
    for (const auto& [a, b, similarity] : problem.edges) {
        // Either end may come first.
        const bool turned = (a + b) % 2 == 0;
        edges.push_back({.source = turned ? b : a,
                         .destination = turned ? a : b,
                         .weight = static_cast<double>(similarity) / kOne});
    }
    return edges;
}

std::vector<double> utilities_of(const SelectProblem& problem) {
    std::vector<double> utilities;
    for (const int32_t u : problem.utility) utilities.push_back(u / kOne);
    return utilities;
}

/// A subset of all ranks.
struct Chosen {
    SampleSubset subset;  ///< of rank 0
    std::vector<int64_t> samples;
};

Chosen choose(const SampleGraph& graph, const SampleUtilities& utilities,
              const SelectSamplesOptions& options, int ranks = 1) {
    Chosen chosen;
    std::vector<std::vector<int64_t>> own(static_cast<size_t>(ranks));
    World::threads(ranks).run([&](Communicator& world) {
        const SampleSubset subset = select_samples(world, graph, utilities, options);
        own[static_cast<size_t>(world.rank())] = subset.own;
        if (world.rank() == 0) chosen.subset = subset;
    });
    for (const auto& some : own) {
        chosen.samples.insert(chosen.samples.end(), some.begin(), some.end());
    }
    return chosen;
}

/// The error of `work`, which must be an Error.
std::string error_of(const std::function<void()>& work, ExitCode code) {
    try {
        work();
    } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), code) << error.what();
        return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
}

class SelectSamples : public ::testing::Test {
protected:
    const SelectProblem problem_ = clustered_problem(5, 300, 3, 12, 6, {.alpha = 3, .beta = 1});
    const std::vector<WeightedEdge> edges_ = edges_of(problem_);
    const std::vector<double> worth_ = utilities_of(problem_);
    SelectSamplesOptions options_{.size = 60,
                                  .alpha = 3,
                                  .bounding = BoundingRule::from("quota:0.4", "--bounding"),
                                  .partitions = 5,
                                  .rounds = 3};
    TempFolder folder_;
};

TEST_F(SelectSamples, ChooseWhatTheToolChoosesOnAnyNumberOfRanks) {
    World::threads(1).run([&](Communicator& world) {
        write_graph(world, folder_ / "graph", problem_);
        write_utility(world, folder_ / "utility", problem_);
    });
    run_selection(folder_ / "", problem_,
                  {.k = 60, .bounding = options_.bounding, .rounds = {.parts = 5, .rounds = 3}},
                  folder_ / "subset");
    const std::vector<int64_t> expected = SubsetReader(folder_ / "subset").all();

    const SampleGraph in_memory(problem_.size(), edges_);
    const SampleGraph in_file(folder_ / "graph");
    const SampleUtilities given(worth_);
    const SampleUtilities of_file(folder_ / "utility");
    EXPECT_EQ(in_memory.samples(), 300);
    for (const int ranks : {1, 2, 5}) {
        for (const auto* graph : {&in_memory, &in_file}) {
            for (const auto* utilities : {&given, &of_file}) {
                const Chosen chosen = choose(*graph, *utilities, options_, ranks);
                EXPECT_EQ(chosen.samples, expected) << ranks;
                EXPECT_EQ(chosen.subset.size, 60);
                EXPECT_EQ(chosen.subset.objective * kOne, problem_.value(expected));
                ASSERT_TRUE(chosen.subset.certificate && chosen.subset.certificate->bound);
                EXPECT_GE(*chosen.subset.certificate->bound, chosen.subset.objective);
            }
        }
    }
}

TEST_F(SelectSamples, AFractionIsRoundedDown) {
    const SampleGraph graph(problem_.size(), edges_);
    const SampleUtilities utilities(worth_);
    options_.size = std::nullopt;
    options_.fraction = Fraction{.numerator = 333, .denominator = 10'000};  // 9.99 samples
    options_.certificate_steps = 0;
    const Chosen chosen = choose(graph, utilities, options_);
    EXPECT_EQ(chosen.subset.size, 9);
    EXPECT_EQ(std::ssize(chosen.samples), 9);
    EXPECT_FALSE(chosen.subset.certificate);
}

TEST_F(SelectSamples, OutputStateAndScratchAreFilesOfTheTool) {
    const SampleGraph graph(problem_.size(), edges_);
    const SampleUtilities utilities(worth_);
    const Chosen in_memory = choose(graph, utilities, options_, 2);
    options_.output = folder_ / "subset";
    options_.state = folder_ / "state";
    options_.scratch = folder_ / "";
    const Chosen written = choose(graph, utilities, options_, 2);
    EXPECT_TRUE(written.samples.empty());
    EXPECT_EQ(SubsetReader(options_.output).all(), in_memory.samples);
    EXPECT_EQ(written.subset.objective, in_memory.subset.objective);
    EXPECT_FALSE(std::filesystem::exists(options_.state));  // removed at the end
}

TEST_F(SelectSamples, AGraphInMemoryLeavesNoFile) {
    const std::string folder = folder_ / "graphs";
    std::filesystem::create_directory(folder);
    const SampleGraph graph(problem_.size(), edges_, folder);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    const SampleUtilities utilities(worth_);
    EXPECT_EQ(std::ssize(choose(graph, utilities, options_).samples), 60);
    const std::vector<WeightedEdge> to_itself{{.source = 1, .destination = 1, .weight = 0.5}};
    EXPECT_THROW(SampleGraph(3, to_itself, folder), InputFileError);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(SelectSamples, EdgesAndUtilitiesThatAreNotAllowedAreNamed) {
    const auto graph_error = [](std::vector<WeightedEdge> edges,
                                ExitCode code = ExitCode::input_file, int64_t samples = 4) {
        return error_of([&] { const SampleGraph graph(samples, edges); }, code);
    };
    EXPECT_THAT(graph_error({{0, 1, 0.5}, {2, 4, 0.5}}), HasSubstr("row 1: names sample 4"));
    EXPECT_THAT(graph_error({{0, -1, 0.5}}), HasSubstr("row 0: names sample -1"));
    EXPECT_THAT(graph_error({{0, 1, -0.5}}), HasSubstr("row 0: weight is -0.5"));
    EXPECT_THAT(graph_error({{0, 1, 0.5}, {1, 0, 0.25}}), HasSubstr("another weight"));
    EXPECT_THAT(graph_error({{0, 1, 0.5}, {0, 1, 0.5}}), HasSubstr("row 0 already"));
    EXPECT_THAT(graph_error({}, ExitCode::usage, 0), HasSubstr("samples 0: must be from 1"));

    const auto utility_error = [](double value) {
        return error_of(
            [&] {
                const SampleUtilities utilities(std::vector<double>{1, value});
            },
            ExitCode::input_file);
    };
    EXPECT_THAT(utility_error(-1), HasSubstr("utilities: row 1: utility is -1"));
    EXPECT_THAT(utility_error(std::nan("")), HasSubstr("utilities: row 1: utility is"));
    EXPECT_THAT(utility_error(2048), HasSubstr("below 2048"));
}

TEST_F(SelectSamples, OptionsThatCannotWorkAreRefusedOnEveryRank) {
    const SampleGraph graph(problem_.size(), edges_);
    const SampleUtilities utilities(worth_);
    const auto refused = [&](const std::function<void(SelectSamplesOptions&)>& change,
                             ExitCode code = ExitCode::usage) {
        SelectSamplesOptions options = options_;
        change(options);
        return error_of([&] { (void)choose(graph, utilities, options, 2); }, code);
    };
    EXPECT_THAT(refused([](auto& o) { o.size = {}; }), HasSubstr("give one of them"));
    EXPECT_THAT(refused([](auto& o) {
                    o.fraction = Fraction{1, 10};
                }),
                HasSubstr("give one of them"));
    EXPECT_THAT(refused([](auto& o) { o.size = 301; }), HasSubstr("only 300 samples"));
    EXPECT_THAT(refused([](auto& o) { o.size = -1; }), HasSubstr("at least 0"));
    const auto of_fraction = [&](const Fraction& fraction) {
        return refused([&](auto& o) {
            o.size = {};
            o.fraction = fraction;
        });
    };
    for (const Fraction bad : {Fraction{1, 3}, Fraction{11, 10}, Fraction{-1, 10}, Fraction{1, 0},
                               Fraction{1, 10'000'000'000}}) {
        EXPECT_THAT(of_fraction(bad), HasSubstr("--fraction"));
        EXPECT_THAT(refused([&](auto& o) {
                        o.bounding = {.kind = BoundingRule::Kind::quota, .share = bad};
                    }),
                    HasSubstr("--bounding"));
    }
    EXPECT_THAT(refused([](auto& o) { o.alpha = -1; }), HasSubstr("--alpha -1: must be from 0"));
    EXPECT_THAT(refused([](auto& o) { o.beta = 1 << 21; }), HasSubstr("--beta 2097152"));
    EXPECT_THAT(refused([](auto& o) { o.partitions = 0; }), HasSubstr("--partitions 0"));
    EXPECT_THAT(refused([](auto& o) { o.partitions = 301; }), HasSubstr("only 300 samples"));
    EXPECT_THAT(refused([](auto& o) { o.rounds = 0; }), HasSubstr("--rounds 0"));
    EXPECT_THAT(refused([](auto& o) { o.certificate_steps = 256; }), HasSubstr("255"));
    EXPECT_THAT(refused([](auto& o) { o.memory = 1000; }, ExitCode::out_of_memory),
                HasSubstr("--memory"));
    EXPECT_THAT(refused([&](auto& o) { o.output = folder_ / "missing/subset"; }, ExitCode::failed),
                HasSubstr("missing/subset"));
    const SampleUtilities fewer{std::span(worth_).first(299)};
    EXPECT_THAT(error_of([&] { (void)choose(graph, fewer, options_); }, ExitCode::input_file),
                HasSubstr("299"));
    const SampleUtilities missing(folder_ / "missing.npy");
    EXPECT_THAT(error_of([&] { (void)choose(graph, missing, options_); }, ExitCode::input_file),
                HasSubstr("missing.npy"));
}

TEST_F(SelectSamples, NeighboursOfEmbeddingsAreThoseOfTheFormula) {
    // Unit vectors at these angles: the nearest of each is beside it, and cosines are exact enough.
    const std::vector<double> angles{0, 0.1, 0.3, 1.0, 1.05, 3.0};
    std::vector<float> embeddings;
    for (const double angle : angles) {
        embeddings.push_back(static_cast<float>(std::cos(angle)));
        embeddings.push_back(static_cast<float>(std::sin(angle)));
    }
    std::vector<std::string> graphs;
    for (const int ranks : {1, 3}) {
        const std::string path = folder_ / ("graph" + std::to_string(ranks));
        World::threads(ranks).run([&](Communicator& world) {
            const SampleGraph graph =
                write_neighbour_graph(world, embeddings, 2, path, {.neighbours = 1});
            EXPECT_EQ(graph.samples(), 6);
        });
        graphs.push_back(read_file(path));
    }
    EXPECT_EQ(graphs.front(), graphs.back());
    const GraphFile file(folder_ / "graph1");
    GraphRows rows(file);
    const auto neighbours_of = [&](int64_t v) {
        const GraphRow row = rows.at(v);
        return std::vector<int64_t>(row.neighbours.begin(), row.neighbours.end());
    };
    EXPECT_THAT(neighbours_of(0), ElementsAre(1));
    EXPECT_NEAR(rows.at(0).similarities.front() / kOne, std::cos(0.1), 1e-5);
    EXPECT_THAT(neighbours_of(1), ElementsAre(0, 2));  // 2's nearest is 1
    EXPECT_THAT(neighbours_of(3), ElementsAre(4));
    EXPECT_THAT(neighbours_of(5), ElementsAre());  // no positive cosine

    const auto refused = [&](std::span<const float> some, int64_t width,
                             const NeighbourOptions& options, ExitCode code = ExitCode::usage) {
        return error_of(
            [&] {
                World::threads(2).run([&](Communicator& world) {
                    (void)write_neighbour_graph(world, some, width, folder_ / "refused", options);
                });
            },
            code);
    };
    EXPECT_THAT(refused(embeddings, 5, {}), HasSubstr("12 numbers are no rows of 5"));
    EXPECT_THAT(refused(embeddings, 0, {}), HasSubstr("no rows of 0"));
    EXPECT_THAT(refused({}, 2, {}), HasSubstr("0 numbers"));
    EXPECT_THAT(refused(embeddings, 2, {.neighbours = 0}), HasSubstr("--neighbours 0"));
    EXPECT_THAT(refused(embeddings, 2, {.threads = 0}), HasSubstr("--threads-per-rank 0"));
    EXPECT_THAT(refused(embeddings, 2, {.memory = 1}, ExitCode::out_of_memory),
                HasSubstr("--memory 1"));
    embeddings[3] = std::numeric_limits<float>::infinity();
    EXPECT_THAT(refused(embeddings, 2, {}, ExitCode::input_file), HasSubstr("row 1: embedding"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "refused"));
}

TEST_F(SelectSamples, CentredEmbeddingsHaveOtherNeighbours) {
    // Far from the origin all cosines are near 1; around their mean, 0 and 1 are opposite to 2
    // and 3.
    const std::vector<float> embeddings{101, 100, 102, 100, 99, 100, 98, 100};
    World::threads(2).run([&](Communicator& world) {
        (void)write_neighbour_graph(world, embeddings, 2, folder_ / "graph",
                                    {.neighbours = 3, .centre = true});
    });
    const GraphFile file(folder_ / "graph");
    EXPECT_EQ(file.entries(), 4);
    EXPECT_THAT(GraphRows(file).at(0).neighbours, ElementsAre(1));
}

}  // namespace
}  // namespace vocabpipe::testing
