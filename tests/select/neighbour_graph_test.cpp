// SPDX-License-Identifier: Apache-2.0
// Graphs of the embeddings of a caller, by the public interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "src/select/files/fixed_point.hpp"
#include "src/select/files/graph_file.hpp"
#include "tests/select/select_calls.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/neighbour_graph.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

class NeighbourGraph : public ::testing::Test {
protected:
    const TempFolder folder_;
};

TEST_F(NeighbourGraph, HasTheNeighboursOfTheFormula) {
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
            Phases phases;
            const SampleGraph graph = write_neighbour_graph(
                world, embeddings, 2, path, {.neighbours = 1, .progress = phases.taker()});
            EXPECT_EQ(graph.samples(), 6);
            EXPECT_THAT(phases.names(), IsSupersetOf({"reading", "rows of the graph"}));
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
    EXPECT_NEAR(rows.at(0).similarities.front() / static_cast<double>(kFixedPointOne),
                std::cos(0.1), 1e-5);
    EXPECT_THAT(neighbours_of(1), ElementsAre(0, 2));  // 2's nearest is 1
    EXPECT_THAT(neighbours_of(3), ElementsAre(4));
    EXPECT_THAT(neighbours_of(5), ElementsAre());  // no positive cosine

    const auto refused = [&](std::span<const float> some, int64_t width,
                             const NeighbourOptions& options, ExitCode code = ExitCode::usage) {
        return agreed_error_of(
            [&](Communicator& world) {
                (void)write_neighbour_graph(world, some, width, folder_ / "refused", options);
            },
            code);
    };
    EXPECT_THAT(refused(embeddings, 5, {}), HasSubstr("12 numbers are no rows of 5"));
    EXPECT_THAT(refused(embeddings, 0, {}), HasSubstr("no rows of 0"));
    EXPECT_THAT(refused({}, 2, {}), HasSubstr("0 numbers"));
    EXPECT_THAT(refused(embeddings, 2, {.neighbours = 0}), HasSubstr("--neighbours 0"));
    EXPECT_THAT(refused(embeddings, 2, {.threads = 0}), HasSubstr("--threads-per-rank 0"));
    EXPECT_THAT(refused(embeddings, 2, {.threads = 1025}), HasSubstr("from 1 to 1024"));
    EXPECT_THAT(refused(embeddings, 2, {.memory = 1}, ExitCode::out_of_memory),
                HasSubstr("--memory 1"));
    {
        const Variable unknown("VOCABPIPE_MAX_INSTRUCTION_SET", "some");
        EXPECT_THAT(refused(embeddings, 2, {}), HasSubstr("VOCABPIPE_MAX_INSTRUCTION_SET"));
    }
    embeddings[3] = std::numeric_limits<float>::infinity();
    EXPECT_THAT(refused(embeddings, 2, {}, ExitCode::input_file), HasSubstr("row 1: embedding"));
    // Memory is checked before the embeddings are read for their mean.
    EXPECT_THAT(refused(embeddings, 2, {.centre = true, .memory = 1}, ExitCode::out_of_memory),
                HasSubstr("--memory 1"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "refused"));
}

TEST_F(NeighbourGraph, ReplacesNoFileOfAnotherKind) {
    write_file(folder_ / "letter", "Dear reader");
    const std::vector<float> embeddings{1, 0, 0, 1};
    const auto write_to = [&](Communicator& world, const std::string& name) {
        (void)write_neighbour_graph(world, embeddings, 2, folder_ / name);
    };
    EXPECT_THAT(
        agreed_error_of([&](Communicator& world) { write_to(world, "letter"); }, ExitCode::usage),
        HasSubstr("is not a graph"));
    EXPECT_EQ(read_file(folder_ / "letter"), "Dear reader");
    for (int time = 0; time < 2; ++time) {  // an older graph is replaced
        World::threads(2).run([&](Communicator& world) { write_to(world, "graph"); });
    }
}

TEST_F(NeighbourGraph, OfCentredEmbeddingsIsAnother) {
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
