// SPDX-License-Identifier: Apache-2.0
// Edges of others on their way in, and tables on their way out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "src/select/convert/export_table.hpp"
#include "src/select/convert/import_edges.hpp"
#include "src/select/files/graph_file.hpp"
#include "src/select/files/npy/npy_file.hpp"
#include "src/select/files/sample_input.hpp"
#include "src/select/files/scores_file.hpp"
#include "src/select/files/subset_file.hpp"
#include "src/select/graph_check.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using EdgeList = std::vector<std::array<double, 3>>;

std::string message_of(const std::function<void()>& body) {
    try {
        body();
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n")));
        return error.what();
    }
    return "accepted";
}

class Edges : public ::testing::Test {
protected:
    void write_edges(const std::string& name, const EdgeList& edges) const {
        NpyOutput file(folder_ / name, NpyType::f8, {std::ssize(edges), 3});
        for (const auto& edge : edges) file.write(std::span<const double>(edge));
        file.publish();
    }
    ImportReport import(const EdgeList& edges, const ImportOptions& options = {}) const {
        write_edges("edges.npy", edges);
        return import_edges(*open_edges(folder_ / "edges.npy"), folder_ / "graph", options);
    }
    std::string refused(const EdgeList& edges, const ImportOptions& options = {}) const {
        const std::string message = message_of([&] { (void)import(edges, options); });
        EXPECT_FALSE(std::filesystem::exists(folder_ / "graph"));
        return message;
    }
    /// All rows of the graph, after a check that edges stand in both of theirs.
    [[nodiscard]] std::vector<std::map<int64_t, int32_t>> graph() const {
        const GraphFile file(folder_ / "graph");
        World::threads(1).run([&](Communicator& world) { (void)check_graph(world, file); });
        GraphRows rows(file);
        std::vector<std::map<int64_t, int32_t>> all(static_cast<size_t>(file.nodes()));
        for (int64_t v = 0; v < file.nodes(); ++v) {
            const GraphRow row = rows.at(v);
            for (size_t i = 0; i < row.degree(); ++i) {
                all[static_cast<size_t>(v)][row.neighbours[i]] = row.similarities[i];
            }
        }
        return all;
    }
    const TempFolder folder_;
};

TEST_F(Edges, NumbersThatAreNoSampleNumbersAreRefused) {
    EXPECT_THAT(refused({{0, 1e9, 1}}),
                HasSubstr("edges.npy: names sample 1000000000, but has only 1 edge, and the graph "
                          "would take 7629 MiB; number the samples from 0 on, or set --samples "
                          "1000000001 if there are so many"));
    EXPECT_EQ(import({{0, (1 << 20) - 1, 1}}).samples, 1 << 20);
    std::filesystem::remove(folder_ / "graph");
    EXPECT_THAT(refused({{0, 1 << 20, 1}}), HasSubstr("names sample 1048576"));
    EXPECT_EQ(import({{0, 1 << 20, 1}}, {.samples = 1 << 21}).samples, 1 << 21);
}

// 64 samples for each edge may be numbers; divided, 64 * 16400 + 63 are as many for each.
TEST_F(Edges, MayNameSixtyFourTimesAsManySamples) {
    EdgeList star;
    for (int i = 1; i < 16400; ++i) star.push_back({0, static_cast<double>(i), 1});
    star.push_back({0, 64 * 16400 + 62, 1});
    EXPECT_EQ(import(star).samples, 64 * 16400 + 63);
    EXPECT_EQ(GraphFile(folder_ / "graph").metadata().at("import.edges"), "16400");
    std::filesystem::remove(folder_ / "graph");
    star.back()[1] += 1;
    EXPECT_THAT(refused(star), HasSubstr("names sample 1049663, but has only 16400 edges"));
}

TEST_F(Edges, MayBeGivenOnceOrInBothDirections) {
    const ImportReport report = import({{3, 1, 0.5}, {0, 1, 1}, {1, 0, 1}});
    EXPECT_EQ(report.samples, 4);
    EXPECT_EQ(report.edges, 2);
    const auto rows = graph();
    EXPECT_THAT(rows[0], ElementsAre(std::pair(1, 1 << 20)));
    EXPECT_THAT(rows[1], ElementsAre(std::pair(0, 1 << 20), std::pair(3, 1 << 19)));
    EXPECT_THAT(rows[2], ElementsAre());
    EXPECT_THAT(rows[3], ElementsAre(std::pair(1, 1 << 19)));
}

TEST_F(Edges, MayLeaveSamplesAlone) {
    EXPECT_EQ(import({{0, 1, 0}}, {.samples = 5}).samples, 5);
    EXPECT_THAT(graph()[0], ElementsAre(std::pair(1, 0)));
    EXPECT_EQ(import({}, {.samples = 2}).edges, 0);
    EXPECT_EQ(graph().size(), 2);
}

TEST_F(Edges, AreTheSameGraphWithAnyMemory) {
    std::mt19937_64 random(1);
    std::map<std::pair<int64_t, int64_t>, double> unique;
    for (int i = 0; i < 3000; ++i) {
        const auto a = static_cast<int64_t>(random() % 200);
        const auto b = static_cast<int64_t>(random() % 200);
        if (a < b) unique[{a, b}] = static_cast<double>(random() % 100) / 64;
    }
    EdgeList edges;
    for (const auto& [ends, weight] : unique) {
        const auto a = static_cast<double>(ends.first);
        const auto b = static_cast<double>(ends.second);
        if (random() % 3 != 0) edges.push_back({a, b, weight});
        if (edges.empty() || edges.back()[1] != b || random() % 2 == 0) {
            edges.push_back({b, a, weight});
        }
    }
    std::ranges::shuffle(edges, random);
    EXPECT_EQ(import(edges).edges, std::ssize(unique));
    const std::string once = read_file(folder_ / "graph");
    const auto rows = graph();
    for (const auto& [ends, weight] : unique) {
        EXPECT_EQ(rows[static_cast<size_t>(ends.first)].at(ends.second), weight * 0x1p20);
    }
    const ImportReport little = import(edges, {.memory = 200 * 8 + 1000});
    EXPECT_GT(little.passes, 10);
    EXPECT_TRUE(read_file(folder_ / "graph") == once);
}

// Rows of three neighbours and of one: with room for three of 24 bytes each, the long row is a part
// of its own, wherever its edges name it. Each of two parts is read twice, after two passes over
// all edges.
TEST_F(Edges, AreReadOnceMoreForEveryPartThatFits) {
    const auto passes = [&](const EdgeList& edges, int64_t room) {
        return import(edges, {.memory = 4 * 8 + static_cast<uint64_t>(room) * 24}).passes;
    };
    const EdgeList from_first{{0, 1, 1}, {0, 2, 1}, {0, 3, 1}};
    const EdgeList to_first{{1, 0, 1}, {2, 0, 1}, {3, 0, 1}};
    for (const EdgeList& edges : {from_first, to_first}) {
        EXPECT_EQ(passes(edges, 6), 2 + 1) << "a single part is kept";
        EXPECT_EQ(passes(edges, 5), 2 + 2 * 2);
        EXPECT_EQ(passes(edges, 3), 2 + 2 * 2);
        EXPECT_EQ(passes(edges, 2), 2 + 2 * 3) << "a row that does not fit is one alone";
    }
}

TEST_F(Edges, AreRefusedWithTheirRow) {
    const std::string file = folder_ / "edges.npy: ";
    const std::string range = "; it must be at least 0 and below 2048";
    EXPECT_EQ(refused({{0, 1, 1}, {2, 2, 1}}),
              file + "row 1: joins sample 2 with itself; remove such edges");
    EXPECT_EQ(refused({{0, 1, -0.5}}), file + "row 0: weight is -0.5" + range);
    EXPECT_EQ(refused({{0, 1, NAN}}), file + "row 0: weight is nan" + range);
    EXPECT_EQ(refused({{0, 1, 2048}}),
              file + "row 0: weight is 2048" + range + ": divide all of them by one number");
    const std::string once = " already; an edge may be given once in each direction";
    EXPECT_EQ(refused({{0, 1, 1}, {1, 2, 1}, {0, 1, 1}}),
              file + "row 2: edge 0 to 1 is in row 0" + once);
    EXPECT_EQ(refused({{0, 1, 1}, {1, 0, 1}, {1, 0, 1}}),
              file + "row 2: edge 1 to 0 is in row 1" + once);
    EXPECT_EQ(refused({{0, 1, 1}, {1, 0, 0.5}}),
              file +
                  "row 1: edge 1 to 0 has another weight than its other direction in row 0; "
                  "give both the same");
    const std::string number = "; it must be the number of a sample, from 0";
    EXPECT_EQ(refused({{0, 1.5, 1}}), file + "row 0: dst is 1.5" + number);
    EXPECT_EQ(refused({{-1, 1, 1}}), file + "row 0: src is -1" + number);
    EXPECT_EQ(refused({{0, 0x1p53, 1}}), file + "row 0: dst is 9007199254740992" + number);
    EXPECT_EQ(refused({{0, 7, 1}}, {.samples = 7}),
              file + "row 0: names sample 7; samples are numbered from 0 to 6");
    EXPECT_EQ(refused({{0x1p40, 0, 1}}),
              file + "row 0: names sample 1099511627776; samples are numbered from 0 to 2^40 - 1");
    EXPECT_EQ(refused({}), file + "has no edges; give --samples for a graph without edges");
    const auto in_memory = [&](uint64_t bytes) {
        return refused({{0, 1000, 1}}, {.memory = bytes});
    };
    EXPECT_EQ(in_memory(8007),
              file + "edges of 1001 samples need 8008 bytes; give --memory of at least as much");
    EXPECT_EQ(import({{0, 1000, 1}}, {.memory = 8008}).edges, 1);
}

// Edges are read 32768 at a time, and as many entries are written at a time.
TEST_F(Edges, MayBeMoreThanAreReadAtOnce) {
    constexpr int64_t kEdges = (1 << 15) + 7;
    EdgeList path;
    for (int64_t i = 0; i < kEdges; ++i) {
        path.push_back(
            {static_cast<double>(i), static_cast<double>(i + 1), static_cast<double>(i % 2039)});
    }
    std::vector<std::string> phases;
    std::vector<int64_t> done;
    const ImportReport report =
        import(path, {.progress = [&](std::string_view phase, int64_t first, int64_t of) {
                   phases.emplace_back(phase);
                   done.push_back(first);
                   EXPECT_EQ(of, kEdges);
               }});
    EXPECT_EQ(report.samples, kEdges + 1);
    EXPECT_EQ(report.edges, kEdges);
    EXPECT_EQ(report.passes, 3);
    EXPECT_THAT(phases, ElementsAre("checking edges", "checking edges", "counting", "counting",
                                    "collecting rows", "collecting rows"));
    EXPECT_THAT(done, ElementsAre(0, 1 << 15, 0, 1 << 15, 0, 1 << 15));
    const auto rows = graph();
    for (int64_t i = 0; i <= kEdges; ++i) {
        std::map<int64_t, int32_t> row;
        if (i > 0) row[i - 1] = static_cast<int32_t>((i - 1) % 2039) << 20;
        if (i < kEdges) row[i + 1] = static_cast<int32_t>(i % 2039) << 20;
        ASSERT_EQ(rows[static_cast<size_t>(i)], row) << i;
    }
}

TEST_F(Edges, AreRefusedInOtherFiles) {
    const auto opened = [&](const std::string& name) {
        return message_of([&] { (void)open_edges(folder_ / name); });
    };
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, 2}, {0, 4}, {0}, {0, 1, 3}}) {
        NpyOutput(folder_ / "other.npy", NpyType::f8, shape).publish();
        std::string lengths;
        for (const int64_t length : shape) {
            lengths += (lengths.empty() ? "" : ", ") + std::to_string(length);
        }
        EXPECT_EQ(opened("other.npy"), (folder_ / "other.npy: has shape [") + lengths +
                                           "]; edges are rows of three numbers: src, dst, weight");
    }
    const auto of_type = [&](NpyType type) {
        NpyOutput(folder_ / "typed.npy", type, {0, 3}).publish();
        return opened("typed.npy");
    };
    for (const auto& [type, name] : {std::pair(NpyType::f2, "<f2"), {NpyType::f4, "<f4"}}) {
        EXPECT_EQ(of_type(type), (folder_ / "typed.npy: has elements ") + name +
                                     ", which cannot number all samples; save it as f8: "
                                     "np.save(FILE, x.astype('<f8'))");
    }
    for (const NpyType type : {NpyType::f8, NpyType::i4, NpyType::i8, NpyType::u4}) {
        EXPECT_EQ(of_type(type), "accepted");
    }
    EXPECT_EQ(opened("edges.csv"),
              "--edges " + (folder_ / "edges.csv") + ": must end in .parquet or .npy");
}

TEST_F(Edges, ComeOutAsTheyWentIn) {
    (void)import({{3, 1, 0.5}, {0, 1, 1}, {2, 3, 0.75}});
    EXPECT_EQ(export_table(folder_ / "graph", folder_ / "out.npy", "").rows, 3);
    const std::string before = read_file(folder_ / "graph");
    (void)import_edges(*open_edges(folder_ / "out.npy"), folder_ / "graph", {});
    EXPECT_TRUE(read_file(folder_ / "graph") == before);
    (void)export_table(folder_ / "graph", folder_ / "out.txt", "");
    EXPECT_EQ(read_file(folder_ / "out.txt"), "0 1 1\n1 3 0.5\n2 3 0.75\n");
}

TEST_F(Edges, ComeOutOfAFileOfVersion2) {
    World::threads(1).run([&](Communicator& world) {
        GraphOutput file(world, folder_ / "graph", {.data = {}, .seq_length = 0, .samples = 2}, 2,
                         {}, 0);
        file.write_row_begin(0, std::span<const int64_t>(std::vector<int64_t>{0, 1, 2}));
        file.write_entries(0, std::span<const int64_t>(std::vector<int64_t>{1, 0}),
                           std::span<const int32_t>(std::vector<int32_t>{1 << 19, 1 << 19}));
        file.publish();
    });
    EXPECT_EQ(export_table(folder_ / "graph", folder_ / "out.txt", "").rows, 1);
    EXPECT_EQ(read_file(folder_ / "out.txt"), "0 1 0.5\n");
}

TEST_F(Edges, AreNotExportedOfAnAsymmetricGraph) {
    World::threads(1).run([&](Communicator& world) {
        GraphOutput file(world, folder_ / "graph", {.data = {}, .seq_length = 0, .samples = 3}, 1);
        file.write_row_begin(0, std::span<const int64_t>(std::vector<int64_t>{0, 1, 1, 1}));
        file.write_entries(0, std::span<const int64_t>(std::vector<int64_t>{1}),
                           std::span<const int32_t>(std::vector<int32_t>{1}));
        file.publish();
    });
    EXPECT_THAT(message_of([&] { (void)export_table(folder_ / "graph", folder_ / "x.txt", ""); }),
                HasSubstr("both of its rows"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "x.txt"));
}

class Scores : public Edges {
protected:
    void SetUp() override {
        const ScoresInfo info{.corpus = {.data = "d", .seq_length = 4, .samples = 3},
                              .utility_kind = "margin",
                              .hidden_size = 2,
                              .loss = true,
                              .provenance = {}};
        World::threads(1).run([&](Communicator& world) {
            ScoresWriter file(world, folder_ / "scores", info);
            file.write_utility(0, std::vector<int32_t>{1 << 20, 0, 1});
            file.write_embedding(0, std::vector<float>{1, 2, 3, 4, 5, 6});
            file.write_loss(0, std::vector<float>{0.5F, 1.5F, 2.5F});
            file.publish();
        });
    }
};

TEST_F(Scores, ComeOutColumnByColumn) {
    (void)export_table(folder_ / "scores", folder_ / "u.npy", "utility");
    std::vector<int32_t> utility(3);
    open_utility(folder_ / "u.npy")->read(0, utility);
    EXPECT_THAT(utility, ElementsAre(1 << 20, 0, 1));
    (void)export_table(folder_ / "scores", folder_ / "e.npy", "embedding");
    const auto embedding = open_embedding(folder_ / "e.npy");
    std::vector<float> rows(6);
    embedding->read(0, rows);
    EXPECT_EQ(embedding->width(), 2);
    EXPECT_THAT(rows, ElementsAre(1, 2, 3, 4, 5, 6));
    (void)export_table(folder_ / "scores", folder_ / "loss.txt", "loss");
    EXPECT_EQ(read_file(folder_ / "loss.txt"), "0.5\n1.5\n2.5\n");
    (void)export_table(folder_ / "scores", folder_ / "e.txt", "embedding");
    EXPECT_EQ(read_file(folder_ / "e.txt"), "1 2\n3 4\n5 6\n");
}

TEST_F(Scores, AreReadAsTheyAre) {
    const auto utility = open_utility(folder_ / "scores");
    EXPECT_EQ(utility->kind(), "margin");
    EXPECT_EQ(utility->corpus().seq_length, 4);
    EXPECT_EQ(open_embedding(folder_ / "scores")->width(), 2);
}

TEST_F(Scores, MayHoldOnlyWhatIsAskedFor) {
    const auto write_with = [&](const std::string& kind, int64_t hidden_size) {
        World::threads(1).run([&](Communicator& world) {
            ScoresWriter file(world, folder_ / "some",
                              {.corpus = {.data = {}, .seq_length = 4, .samples = 2},
                               .utility_kind = kind,
                               .hidden_size = hidden_size});
            if (!kind.empty()) file.write_utility(0, std::vector<int32_t>{5, 6});
            if (hidden_size > 0) file.write_embedding(0, std::vector<float>{7, 8});
            file.publish();
        });
    };
    write_with("", 1);
    std::vector<float> rows(2);
    open_embedding(folder_ / "some")->read(0, rows);
    EXPECT_THAT(rows, ElementsAre(7, 8));
    EXPECT_THAT(message_of([&] { (void)open_utility(folder_ / "some"); }),
                HasSubstr("some: has no utilities; make it with vocabpipe select score"));
    write_with("margin", 0);
    std::vector<int32_t> utility(2);
    open_utility(folder_ / "some")->read(0, utility);
    EXPECT_THAT(utility, ElementsAre(5, 6));
    EXPECT_THAT(message_of([&] { (void)open_embedding(folder_ / "some"); }),
                HasSubstr("some: has no embeddings; make it with vocabpipe select score"));
}

TEST_F(Scores, AreRefusedWhereAColumnIsToBeChosen) {
    const auto message = [&](const std::string& output, const std::string& column) {
        return message_of(
            [&] { (void)export_table(folder_ / "scores", folder_ / output, column); });
    };
    EXPECT_THAT(message("x.npy", ""), HasSubstr("choose one with --column"));
    EXPECT_THAT(message("x.csv", "utility"), HasSubstr("must end in .parquet, .npy or .txt"));
    (void)import({{0, 1, 1}});
    EXPECT_THAT(
        message_of([&] { (void)export_table(folder_ / "graph", folder_ / "x.npy", "loss"); }),
        HasSubstr("--column loss"));
}

TEST_F(Scores, OfSubsetsAreNumbers) {
    World::threads(1).run([&](Communicator& world) {
        SubsetWriter file(
            world, folder_ / "subset",
            {.corpus = {.data = {}, .seq_length = 0, .samples = 9}, .count = 3, .provenance = {}});
        file.write(0, std::vector<int64_t>{0, 4, 8});
        file.publish();
    });
    (void)export_table(folder_ / "subset", folder_ / "s.txt", "");
    EXPECT_EQ(read_file(folder_ / "s.txt"), "0\n4\n8\n");
    EXPECT_EQ(export_table(folder_ / "subset", folder_ / "s.npy", "").what, "subset");
    NpyInput numbers(folder_ / "s.npy");
    EXPECT_EQ(numbers.header().type, NpyType::i8);
}

}  // namespace
}  // namespace vocabpipe::testing
