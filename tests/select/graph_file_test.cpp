// SPDX-License-Identifier: Apache-2.0
// What a graph's file may hold, and the line that anything else gets, on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "src/select/graph_check.hpp"
#include "tests/select/select_problem.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

/// The tensors of a file, right or wrong.
struct RawGraph {
    std::vector<int64_t> row_begin;
    std::vector<uint32_t> neighbour;
    std::vector<int32_t> similarity;
    int64_t samples = 4;
};

/// 0 - 1 - 2, and 3 alone.
const RawGraph kChain{
    .row_begin = {0, 1, 3, 4, 4}, .neighbour = {1, 0, 2, 1}, .similarity = {5, 5, 6, 6}};

void write_raw(const std::string& path, const RawGraph& raw,
               const std::string& format = GraphFile::kFormat) {
    World::threads(1).run([&](Communicator& world) {
        std::map<std::string, std::string> metadata{{"format", format}};
        Corpus{.data = "x", .seq_length = 4, .samples = raw.samples}.write_to(metadata);
        TensorOutput output(
            world, path,
            {{.name = "row_begin", .type = StoredType::I64, .shape = {std::ssize(raw.row_begin)}},
             {.name = "neighbour", .type = StoredType::U32, .shape = {std::ssize(raw.neighbour)}},
             {.name = "similarity",
              .type = StoredType::I32,
              .shape = {std::ssize(raw.similarity)}}},
            metadata);
        output.write<int64_t>("row_begin", 0, raw.row_begin);
        output.write<uint32_t>("neighbour", 0, raw.neighbour);
        output.write<int32_t>("similarity", 0, raw.similarity);
        output.publish();
    });
}

TEST(TensorOutput, LeavesADeviceADevice) {
    const TempFolder folder;
    const std::string device = folder / "nul";
    if (::mknod(device.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) {
        GTEST_SKIP() << "cannot make a device";
    }
    write_raw(device, kChain);
    EXPECT_TRUE(std::filesystem::is_character_file(device));
    EXPECT_EQ(folder.names(), (std::set<std::string>{"nul"}));
}

TEST(TensorOutput, OfTwoWritersIsWhole) {
    const TempFolder folder;
    write_file(folder / "x.partial", "a user's own");
    write_file(folder / "x.partial-4000000-0", "of a killed run");
    World::threads(2).run([&](Communicator& world) {
        const auto open = [&] {
            return std::make_unique<TensorOutput>(
                world, folder / "x",
                std::vector<StoredTensor>{{.name = "a", .type = StoredType::I64, .shape = {2}}},
                std::map<std::string, std::string>{});
        };
        auto first = open();
        auto second = open();
        first->write<int64_t>("a", world.rank(), std::vector<int64_t>{5});
        first->publish();
        first.reset();
        second.reset();  // given up
        world.barrier();
    });
    EXPECT_EQ(folder.names(), (std::set<std::string>{"x", "x.partial"}));
    EXPECT_EQ(read_file(folder / "x.partial"), "a user's own");
}

/// What the check of a file says on `ranks` ranks; empty: it is right.
std::string refusal(const std::string& path, int ranks) {
    try {
        World::threads(ranks).run([&](Communicator& world) {
            std::optional<GraphFile> graph;
            world.agree([&] { graph.emplace(path); });
            (void)check_graph(world, *graph);
        });
    } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::input_file) << error.what();
        return error.what();
    }
    return {};
}

TEST(GraphFile, GivesTheRowsThatWereWritten) {
    const TempFolder folder;
    const std::string path = folder / "graph";
    const SelectProblem problem = random_problem(1, 3000, 6, 100, 1 << 20);
    World::threads(1).run([&](Communicator& world) { write_graph(world, path, problem); });
    const GraphFile graph(path);
    EXPECT_EQ(graph.nodes(), 3000);
    EXPECT_EQ(graph.entries(), 2 * std::ssize(problem.edges));
    std::vector<std::map<int64_t, int64_t>> rows(3000);
    for (const auto& [a, b, s] : problem.edges) {
        rows[static_cast<size_t>(a)][b] = s;
        rows[static_cast<size_t>(b)][a] = s;
    }
    // In order, with gaps, and backwards; blocks of all sizes.
    for (const uint64_t buffer : {16, 1000, 1 << 20}) {
        for (const int64_t step : {1, 7, 400, -1, -13}) {
            GraphRows reader(graph, buffer);
            for (int64_t v = step > 0 ? 0 : 2999; v >= 0 && v < 3000; v += step) {
                const GraphRow row = reader.at(v);
                const auto& want = rows[static_cast<size_t>(v)];
                ASSERT_EQ(row.degree(), want.size());
                ASSERT_EQ(reader.degree(v), std::ssize(want));
                size_t i = 0;
                for (const auto& [neighbour, s] : want) {
                    ASSERT_EQ(row.neighbours[i], neighbour);
                    ASSERT_EQ(row.similarities[i++], s);
                }
            }
        }
    }
}

TEST(GraphFile, OfTheSameGraphHasTheSameBytesAndFingerprintForAnyNumberOfRanks) {
    const TempFolder folder;
    const SelectProblem problem = random_problem(2, 200, 4, 100, 9);
    std::map<int, uint64_t> prints;
    for (const int ranks : {1, 2, 3, 5}) {
        const std::string path = folder / std::to_string(ranks);
        World::threads(ranks).run([&](Communicator& world) {
            write_graph(world, path, problem);
            const GraphFile graph(path);
            const GraphCheck check = check_graph(world, graph);
            if (world.rank() == 0) prints[ranks] = check.fingerprint();
        });
        EXPECT_EQ(read_file(path), read_file(folder / "1"));
        EXPECT_EQ(prints[ranks], prints[1]);
    }
    SelectProblem other = problem;
    other.edges[7][2] ^= 1;
    World::threads(1).run([&](Communicator& world) {
        write_graph(world, folder / "other", other);
        EXPECT_NE(check_graph(world, GraphFile(folder / "other")).fingerprint(), prints[1]);
    });
}

struct BadGraph {
    const char* name;
    void (*change)(RawGraph&);
    const char* says;
};

class BadGraphs : public ::testing::TestWithParam<BadGraph> {};

TEST_P(BadGraphs, AreRefusedWithFileRowAndValues) {
    const TempFolder folder;
    RawGraph raw = kChain;
    write_raw(folder / "right", raw);
    EXPECT_EQ(refusal(folder / "right", 2), "");
    GetParam().change(raw);
    const std::string path = folder / "wrong";
    write_raw(path, raw);
    for (const int ranks : {1, 2, 3, 7}) {
        const std::string what = refusal(path, ranks);
        EXPECT_THAT(what, HasSubstr(path + ": "));
        EXPECT_THAT(what, HasSubstr(GetParam().says));
        EXPECT_EQ(what.find('\n'), std::string::npos);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Select, BadGraphs,
    ::testing::Values(
        BadGraph{"self", [](RawGraph& g) { g.neighbour[2] = 1; },
                 "row 1: names itself as a neighbour"},
        BadGraph{"negative",
                 [](RawGraph& g) {
                     g.similarity = {5, 5, -6, -6};
                 },
                 "row 1: neighbour 2 has similarity -6"},
        BadGraph{"beyond", [](RawGraph& g) { g.neighbour[2] = 4; },
                 "row 1: neighbour 4 is beyond the 4 samples"},
        BadGraph{"largest", [](RawGraph& g) { g.neighbour[2] = UINT32_MAX; },
                 "neighbour 4294967295 is beyond"},
        BadGraph{"order", [](RawGraph& g) { std::swap(g.neighbour[1], g.neighbour[2]); },
                 "row 1: neighbour 0 follows 2; they must ascend"},
        BadGraph{"twice", [](RawGraph& g) { g.neighbour[2] = 0; },
                 "row 1: neighbour 0 follows 0; an edge may be given once"},
        BadGraph{"one_row", [](RawGraph& g) { g.neighbour[0] = 3; },
                 "row 0: neighbour 3 has similarity 5, but row 3 does not name 0"},
        BadGraph{"two_similarities", [](RawGraph& g) { g.similarity[3] = 7; },
                 "row 1: neighbour 2 has similarity 6, but row 2 says 7"},
        BadGraph{"first", [](RawGraph& g) { g.row_begin[0] = 1; }, "row_begin: goes from 1"},
        BadGraph{"last", [](RawGraph& g) { g.row_begin[4] = 5; },
                 "row_begin: goes from 0 to 5; it must go from 0 to the length of neighbour, 4"},
        BadGraph{"falls", [](RawGraph& g) { g.row_begin[2] = 0; },
                 "row 1: row_begin goes from 1 to 0"},
        BadGraph{"far", [](RawGraph& g) { g.row_begin[2] = INT64_MAX; }, "row 1: row_begin goes"},
        BadGraph{"minus", [](RawGraph& g) { g.row_begin[1] = INT64_MIN; }, "row 0: row_begin goes"},
        BadGraph{"long_row",
                 [](RawGraph& g) {
                     g.row_begin = {0, 4, 4, 4, 4};
                 },
                 "row 0: has 4 neighbours; there are only 3 other samples"},
        BadGraph{"lengths", [](RawGraph& g) { g.similarity.push_back(1); },
                 "neighbour and similarity: have shapes [4] and [5]"},
        BadGraph{"rows", [](RawGraph& g) { g.row_begin.push_back(4); },
                 "tensor row_begin: has [6] elements for 4 samples"},
        BadGraph{"many", [](RawGraph& g) { g.samples = (int64_t{1} << 32) + 1; },
                 "at most 2^32 can be numbered in version 1"},
        BadGraph{"less", [](RawGraph& g) { g.samples = -1; }, "must be a number of at least 0"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(GraphFile, OfAnotherKindOrCutOffIsRefused) {
    const TempFolder folder;
    write_raw(folder / "scores", kChain, "vocabpipe scores 1");
    EXPECT_THAT(refusal(folder / "scores", 2), HasSubstr("expected \"vocabpipe graph 1\""));
    write_raw(folder / "graph", kChain);
    const std::string bytes = read_file(folder / "graph");
    for (size_t left = 0; left < bytes.size(); left += 3) {
        write_file(folder / "short", bytes.substr(0, left));
        EXPECT_NE(refusal(folder / "short", 2), "") << left;
    }
    EXPECT_NE(refusal(folder / "missing", 2), "");
}

TEST(GraphFile, WithoutSamplesOrEdgesIsRight) {
    const TempFolder folder;
    write_raw(folder / "none", {.row_begin = {0}, .samples = 0});
    EXPECT_EQ(refusal(folder / "none", 3), "");
    write_raw(folder / "alone", {.row_begin = {0, 0, 0}, .samples = 2});
    EXPECT_EQ(refusal(folder / "alone", 3), "");
}

/// A few of many edges wrong: the first is named, however ranks share the rows.
TEST(GraphCheck, NamesTheFirstOfSeveralAsymmetricEdges) {
    const TempFolder folder;
    const SelectProblem problem = random_problem(3, 500, 5, 9, 1000);
    World::threads(1).run(
        [&](Communicator& world) { write_graph(world, folder / "right", problem); });
    const GraphFile graph(folder / "right");
    RawGraph raw{.row_begin = {0}, .samples = 500};
    GraphRows rows(graph);
    for (int64_t v = 0; v < 500; ++v) {
        const GraphRow row = rows.at(v);
        raw.neighbour.insert(raw.neighbour.end(), row.neighbours.begin(), row.neighbours.end());
        raw.similarity.insert(raw.similarity.end(), row.similarities.begin(),
                              row.similarities.end());
        raw.row_begin.push_back(std::ssize(raw.neighbour));
    }
    for (const size_t wrong : {size_t{900}, raw.similarity.size() - 1}) raw.similarity[wrong] ^= 1;
    // The entry of the other row comes first where its row does.
    std::string want;
    for (int64_t v = 0; v < 500 && want.empty(); ++v) {
        for (int64_t e = raw.row_begin[static_cast<size_t>(v)];
             e < raw.row_begin[static_cast<size_t>(v) + 1] && want.empty(); ++e) {
            const uint32_t w = raw.neighbour[static_cast<size_t>(e)];
            const auto begin = raw.neighbour.begin() + raw.row_begin[w];
            const auto at = std::find(begin, raw.neighbour.end(), static_cast<uint32_t>(v)) -
                            raw.neighbour.begin();
            if (raw.similarity[static_cast<size_t>(at)] != raw.similarity[static_cast<size_t>(e)]) {
                want = "row " + std::to_string(v) + ": neighbour " + std::to_string(w) + " has";
            }
        }
    }
    write_raw(folder / "wrong", raw);
    for (const int ranks : {1, 2, 4}) {
        EXPECT_THAT(refusal(folder / "wrong", ranks), HasSubstr(want));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
