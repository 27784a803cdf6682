// SPDX-License-Identifier: Apache-2.0
// Samples beyond 2^32. Files of 2^40 samples are sparse: only the last rows are written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "src/select/files/subset_file.hpp"
#include "src/select/graph_check.hpp"
#include "src/select/greedy.hpp"
#include "src/select/knn/neighbour_rows.hpp"
#include "src/select/packed_id.hpp"
#include "src/support/safetensors/writer.hpp"
#include "tests/select/select_problem.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kNodes = GraphFile::kMostNodes;
constexpr int64_t kIds[] = {0, 1, 255, (int64_t{1} << 32) - 1, int64_t{1} << 32, kNodes - 1};

TEST(PackedId, HoldsFortyBitsInOrder) {
    for (const int64_t a : kIds) {
        EXPECT_EQ(PackedId(a).value(), a);
        for (const int64_t b : kIds) {
            EXPECT_EQ(PackedId(a) < PackedId(b), a < b);
            EXPECT_EQ(PackedId(a) == PackedId(b), a == b);
        }
    }
}

TEST(NearestKey, HoldsFortyBitsAndTheNearestFirst) {
    for (const int64_t id : kIds) {
        for (const int32_t similarity : {1, 77, 1 << 20}) {
            const NearestKey key = nearest_key(similarity, id);
            EXPECT_GT(key, 0U);
            EXPECT_EQ(id_of(key), id);
            EXPECT_EQ(similarity_of(key), similarity);
            const RowEntry entry = row_entry(id, similarity);
            EXPECT_EQ(neighbour_of(entry), id);
            EXPECT_EQ(weight_of(entry), similarity);
        }
    }
    EXPECT_GT(nearest_key(5, kNodes - 1), nearest_key(4, 0)) << "more similar";
    EXPECT_GT(nearest_key(5, kNodes - 2), nearest_key(5, kNodes - 1)) << "smaller id";
    EXPECT_LT(row_entry(kNodes - 2, 1 << 20), row_entry(kNodes - 1, 1)) << "ascends by neighbour";
}

SafetensorsPlan sparse_plan(int64_t entries) {
    std::map<std::string, std::string> metadata{{"format", GraphFile::kWideFormat}};
    Corpus{.data = "sparse", .seq_length = 8, .samples = kNodes}.write_to(metadata);
    return {{{.name = "row_begin", .type = StoredType::I64, .shape = {kNodes + 1}},
             {.name = "neighbour", .type = StoredType::U32, .shape = {entries}},
             {.name = "neighbour_high", .type = StoredType::U8, .shape = {entries}},
             {.name = "similarity", .type = StoredType::I32, .shape = {entries}}},
            metadata};
}

/// Writes a graph of 2^40 samples, of which the last ones have the edges of `problem`. Returns
/// false if the file system has no such files.
bool write_sparse(const std::string& path, const SelectProblem& problem) {
    const int64_t first = kNodes - problem.size();
    std::vector<std::map<int64_t, int32_t>> rows(problem.utility.size());
    for (const auto& [a, b, s] : problem.edges) {
        rows[static_cast<size_t>(a)][first + b] = static_cast<int32_t>(s);
        rows[static_cast<size_t>(b)][first + a] = static_cast<int32_t>(s);
    }
    std::vector<int64_t> begins{0};
    std::vector<uint32_t> low;
    std::vector<uint8_t> high;
    std::vector<int32_t> similarities;
    for (const auto& row : rows) {
        for (const auto& [neighbour, s] : row) {
            low.push_back(static_cast<uint32_t>(neighbour));
            high.push_back(static_cast<uint8_t>(neighbour >> 32));
            similarities.push_back(s);
        }
        begins.push_back(std::ssize(low));
    }
    const SafetensorsPlan plan = sparse_plan(std::ssize(low));
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return false;
    bool written = ::ftruncate(file, static_cast<off_t>(plan.file_bytes())) == 0;
    const auto put = [&](uint64_t offset, std::span<const std::byte> bytes) {
        written = written && ::pwrite(file, bytes.data(), bytes.size(),
                                      static_cast<off_t>(offset)) == std::ssize(bytes);
    };
    put(0, std::as_bytes(std::span(plan.header())));
    put(plan.at("row_begin").begin + static_cast<uint64_t>(first) * sizeof(int64_t),
        std::as_bytes(std::span(begins)));
    put(plan.at("neighbour").begin, std::as_bytes(std::span(low)));
    put(plan.at("neighbour_high").begin, std::as_bytes(std::span(high)));
    put(plan.at("similarity").begin, std::as_bytes(std::span(similarities)));
    ::close(file);
    return written;
}

class SparseGraph : public ::testing::Test {
protected:
    void SetUp() override {
        if (!write_sparse(folder_ / "sparse", problem_)) {
            GTEST_SKIP() << "the file system has no sparse files of 9 TB";
        }
    }
    const SelectProblem problem_ = random_problem(21, 300, 5, 1000, 1000);
    const int64_t first_ = kNodes - problem_.size();
    TempFolder folder_;
};

TEST_F(SparseGraph, GivesTheRowsOfSamplesNear2To40) {
    const GraphFile graph(folder_ / "sparse");
    EXPECT_EQ(graph.nodes(), kNodes);
    std::map<std::pair<int64_t, int64_t>, int64_t> found;
    GraphRows rows(graph);
    for (int64_t v = first_; v < kNodes; ++v) {
        const GraphRow row = rows.at(v);
        for (size_t i = 0; i < row.degree(); ++i) {
            found[{v - first_, row.neighbours[i] - first_}] = row.similarities[i];
        }
    }
    EXPECT_EQ(std::ssize(found), 2 * std::ssize(problem_.edges));
    for (const auto& [a, b, s] : problem_.edges) {
        EXPECT_EQ((found[{a, b}]), s);
        EXPECT_EQ((found[{b, a}]), s);
    }
    for (const int64_t v : {int64_t{0}, int64_t{1} << 32, first_ - 1}) EXPECT_EQ(rows.degree(v), 0);
}

/// What the check of the last rows says; empty: they are right.
std::string refusal_of(const std::string& path, int64_t first) {
    try {
        World::threads(1).run([&](Communicator& world) {
            const GraphFile graph(path);
            GraphRows rows(graph);
            GraphCheck check;
            for (int64_t v = first; v < kNodes; ++v) check.add(rows.at(v));
            check.finish(world, graph, first, kNodes);
        });
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

TEST_F(SparseGraph, IsCheckedForEdgesThatStandInOneRow) {
    EXPECT_EQ(refusal_of(folder_ / "sparse", first_), "");
    const GraphFile graph(folder_ / "sparse");
    GraphRows rows(graph);
    int64_t v = first_;
    while (rows.degree(v) == 0) ++v;
    const GraphRow row = rows.at(v);
    const std::string named = "row " + std::to_string(v) + ": neighbour " +
                              std::to_string(row.neighbours[0]) + " has similarity";
    const int32_t wrong = row.similarities[0] ^ 1;
    const int file = ::open((folder_ / "sparse").c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(file, 0);
    ASSERT_EQ(::pwrite(file, &wrong, sizeof wrong,
                       static_cast<off_t>(sparse_plan(graph.entries()).at("similarity").begin)),
              static_cast<ssize_t>(sizeof wrong));
    ::close(file);
    EXPECT_THAT(refusal_of(folder_ / "sparse", first_), HasSubstr(named));
}

TEST_F(SparseGraph, IsChosenFromAsTheSameSamplesFromZeroOn) {
    World::threads(1).run([&](Communicator& world) {
        write_graph(world, folder_ / "dense", problem_);
        const auto chosen_of = [&](const std::string& path, int64_t first, uint64_t edge_bytes) {
            const GraphFile graph(path);
            SelectContext context{.world = world, .graph = graph, .objective = problem_.objective};
            const StateBlocks chunks{.folder = folder_ / "", .chunk_bytes = 1000};
            MessageRuns runs(chunks, 1);
            std::vector<PartNode> nodes;
            GraphRows rows(graph);
            for (int64_t v = 0; v < problem_.size(); ++v) {
                if (v % 3 == 0) continue;  // of another part
                nodes.push_back({.gain = int64_t{9} * problem_.utility[static_cast<size_t>(v)],
                                 .node = first + v});
                const GraphRow row = rows.at(first + v);
                for (size_t i = 0; i < row.degree(); ++i) {
                    runs.add(0, PartEntry{.node = PackedId(row.node),
                                          .other = PackedId(row.neighbours[i]),
                                          .similarity = row.similarities[i]});
                }
            }
            PartEdges edges(context.memory, nodes, edge_bytes);
            bool fits = true;
            runs.read<PartEntry>(
                0, [&](std::span<const PartEntry> some) { fits = fits && edges.add(some); });
            EXPECT_EQ(fits, edge_bytes > 0);
            if (!fits) edges.read_from(runs, 0);
            auto chosen = greedy(context, nodes, 100, edges);
            for (int64_t& node : chosen) node -= first;
            return chosen;
        };
        const auto dense = chosen_of(folder_ / "dense", 0, 1 << 20);
        EXPECT_EQ(dense.size(), 100U);
        EXPECT_EQ(chosen_of(folder_ / "sparse", first_, 1 << 20), dense);
        EXPECT_EQ(chosen_of(folder_ / "sparse", first_, 0), dense) << "entries that are read again";
    });
}

TEST(SubsetFile, HoldsSamplesNear2To40) {
    const TempFolder folder;
    const std::vector<int64_t> samples{5, int64_t{1} << 32, kNodes - 1};
    World::threads(1).run([&](Communicator& world) {
        SubsetWriter writer(world, folder / "subset",
                            {.corpus = {.data = "x", .seq_length = 8, .samples = kNodes},
                             .count = 3,
                             .provenance = {}});
        writer.write(0, samples);
        writer.publish();
    });
    const SubsetReader reader(folder / "subset");
    EXPECT_THAT(reader.all(), ElementsAre(5, int64_t{1} << 32, kNodes - 1));
    EXPECT_EQ(reader.position_of(int64_t{1} << 33), 2);
}

}  // namespace
}  // namespace vocabpipe::testing
