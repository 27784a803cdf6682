// SPDX-License-Identifier: Apache-2.0
// The graph of nearest neighbours against a double loop, and its bytes for numbers of ranks. One
// source, two programs: worlds of threads, and with VOCABPIPE_TEST_MPI the processes of one mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "src/select/files/graph_file.hpp"
#include "src/select/graph_check.hpp"
#include "src/select/knn/centred_embeddings.hpp"
#include "src/select/knn/knn_graph.hpp"
#include "src/select/knn/recall.hpp"
#include "tests/select/shared_folder.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::testing {
namespace {

#ifdef VOCABPIPE_TEST_MPI
constexpr bool kKnnThreads = false;
const std::vector<int> kKnnRanks{0};
#else
constexpr bool kKnnThreads = true;
const std::vector<int> kKnnRanks{1, 2, 3, 4};
#endif

using Rows = std::vector<std::vector<float>>;

/// Embeddings that a test has made up.
class MadeUp : public EmbeddingInput {
public:
    explicit MadeUp(const Rows& rows)
        : EmbeddingInput("made-up", {.data = {}, .seq_length = 0, .samples = std::ssize(rows)},
                         std::ssize(rows.front())),
          rows_(rows) {}
    void read(int64_t first, std::span<float> to) override {
        for (size_t i = 0; i < to.size(); ++i) {
            const auto width = static_cast<size_t>(this->width());
            to[i] = rows_.at(static_cast<size_t>(first) + i / width).at(i % width);
        }
    }

private:
    const Rows& rows_;
};

Rows random_rows(uint64_t seed, size_t n, size_t width, const std::function<float(float)>& value) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    Rows rows(n, std::vector<float>(width));
    for (auto& row : rows) {
        for (float& x : row) x = value(normal(random));
    }
    return rows;
}
Rows normal_rows(uint64_t seed, size_t n, size_t width) {
    return random_rows(seed, n, width, [](float x) { return x; });
}
/// Every cosine is a multiple of 2^-6 in any arithmetic: lengths are 8, elements 1 and -1.
Rows sign_rows(uint64_t seed, size_t n) {
    return random_rows(seed, n, 64, [](float x) { return x < 0 ? -1.0F : 1.0F; });
}

/// Neighbour and similarity of each row.
using Graph = std::vector<std::map<int64_t, int32_t>>;

Graph read_graph(const std::string& path) {
    const GraphFile file(path);
    GraphRows rows(file);
    Graph graph(static_cast<size_t>(file.nodes()));
    for (int64_t v = 0; v < file.nodes(); ++v) {
        const GraphRow row = rows.at(v);
        for (size_t i = 0; i < row.degree(); ++i) {
            graph[static_cast<size_t>(v)][row.neighbours[i]] = row.similarities[i];
        }
    }
    return graph;
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
    double product = 0;
    double of_a = 0;
    double of_b = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        product += double{a[i]} * double{b[i]};
        of_a += double{a[i]} * double{a[i]};
        of_b += double{b[i]} * double{b[i]};
    }
    return product / std::sqrt(of_a * of_b);
}

/// Integer similarities of all pairs, of the double loop.
std::vector<std::vector<int32_t>> all_similarities(const Rows& rows) {
    std::vector<std::vector<int32_t>> all(rows.size(), std::vector<int32_t>(rows.size()));
    for (size_t v = 0; v < rows.size(); ++v) {
        for (size_t w = 0; w < rows.size(); ++w) {
            all[v][w] = static_cast<int32_t>(
                std::max(std::nearbyint(cosine(rows[v], rows[w]) * 0x1p20), 0.0));
        }
    }
    return all;
}

/// Ids that one row certainly names, and those that it may name where similarities are uncertain by
/// `slack`.
struct Named {
    std::vector<int64_t> surely, perhaps;
};
Named nearest_of(const std::vector<int32_t>& similarities, int64_t v, int64_t k, int32_t slack) {
    std::vector<std::pair<int32_t, int64_t>> order;
    for (int64_t w = 0; w < std::ssize(similarities); ++w) {
        if (w != v) order.emplace_back(-similarities[static_cast<size_t>(w)], w);
    }
    std::ranges::sort(order);
    const auto most = std::min<size_t>(static_cast<size_t>(k), order.size());
    const int32_t kth = most < order.size() ? -order[most - 1].first : 0;
    const int32_t next = most < order.size() ? -order[most].first : 0;
    Named named;
    for (size_t i = 0; i < order.size(); ++i) {
        const int32_t similarity = -order[i].first;
        if (similarity + slack < 1) continue;
        const bool sure = i < most && (slack == 0 || similarity > next + 2 * slack);
        if (sure && similarity - slack >= 1) named.surely.push_back(order[i].second);
        if (i < most || (slack > 0 && similarity >= kth - 2 * slack)) {
            named.perhaps.push_back(order[i].second);
        }
    }
    return named;
}

void expect_nearest(const Rows& rows, const Graph& graph, int64_t k, int32_t slack) {
    const auto similarities = all_similarities(rows);
    Graph least(rows.size());
    Graph most(rows.size());
    for (size_t v = 0; v < rows.size(); ++v) {
        const Named named = nearest_of(similarities[v], static_cast<int64_t>(v), k, slack);
        const auto both = [&](Graph& of, int64_t w) {
            of[v][w] = of[static_cast<size_t>(w)][static_cast<int64_t>(v)] =
                similarities[v][static_cast<size_t>(w)];
        };
        for (const int64_t w : named.surely) both(least, w);
        for (const int64_t w : named.perhaps) both(most, w);
    }
    for (size_t v = 0; v < rows.size(); ++v) {
        for (const auto& [w, similarity] : least[v]) {
            ASSERT_TRUE(graph[v].contains(w)) << v << " lacks " << w;
        }
        for (const auto& [w, similarity] : graph[v]) {
            ASSERT_TRUE(most[v].contains(w)) << v << " has " << w;
            ASSERT_LE(std::abs(similarity - most[v][w]), slack) << v << " " << w;
        }
    }
}

/// The parameter is the number of ranks; under mpirun it is what mpirun started.
class Knn : public ::testing::TestWithParam<int> {
protected:
    static void run(int ranks, const std::function<void(Communicator&)>& body) {
        const WaitOptions wait{.timeout_seconds = 60};
        World world = kKnnThreads ? World::threads(ranks, wait) : World::mpi(wait);
        world.run(body);
    }
    /// The graph as all ranks have written it; after comparing its bytes with those of one rank.
    Graph graph_of(const Rows& rows, const KnnOptions& options) {
        Graph graph;
        run(GetParam(), [&](Communicator& world) {
            const SharedFolder folder(world);
            MadeUp input(rows);
            const auto report = write_knn_graph(world, input, folder / "many", options);
            const GraphFile file(folder / "many");
            const GraphCheck check = check_graph(world, file);
            if (world.rank() != 0) return;
            ASSERT_TRUE(report.has_value());
            EXPECT_EQ(report->graph.entries, file.entries());
            EXPECT_EQ(report->graph.longest_row, check.longest_row());
            EXPECT_EQ(report->graph.without_neighbours, check.isolated());
            World::threads(1).run([&](Communicator& alone) {
                (void)write_knn_graph(alone, input, folder / "one",
                                      {.neighbours = options.neighbours});
            });
            EXPECT_TRUE(read_file(folder / "many") == read_file(folder / "one"));
            graph = read_graph(folder / "many");
            for (size_t v = 0; v < rows.size(); ++v) {
                for (const auto& [w, similarity] : graph[v]) {
                    ASSERT_GE(similarity, 1);
                    ASSERT_EQ(graph[static_cast<size_t>(w)].at(static_cast<int64_t>(v)),
                              similarity);
                }
            }
            expected_ = true;
        });
        return graph;
    }
    /// Whether this process has rank 0, and so a graph.
    bool expected_ = false;
};

TEST_P(Knn, FindsWhatADoubleLoopFinds) {
    for (const size_t n : {2, 3, 255, 257, 700}) {
        SCOPED_TRACE(n);
        const Rows rows = normal_rows(n, n, 37);
        const Graph graph = graph_of(rows, {.neighbours = 5});
        if (expected_) expect_nearest(rows, graph, 5, 1);
    }
}

TEST_P(Knn, FindsExactlyWhatIntegersSay) {
    const Rows rows = sign_rows(1, 1100);
    const Graph graph = graph_of(rows, {.neighbours = 7, .threads = 2});
    if (expected_) expect_nearest(rows, graph, 7, 0);
}

TEST_P(Knn, TakesSmallerIdsOfEquallyNearOnes) {
    // Three directions only: all of one are duplicates of each other.
    Rows rows(600, std::vector<float>(3));
    for (size_t i = 0; i < rows.size(); ++i) rows[i][i % 3] = 2;
    const Graph graph = graph_of(rows, {.neighbours = 2});
    if (!expected_) return;
    expect_nearest(rows, graph, 2, 0);
    EXPECT_EQ(graph[599].size(), 2);
    EXPECT_EQ(graph[2].size(), 199);  // the first of its kind is everybody's neighbour
    EXPECT_EQ(graph[2].at(599), kFixedPointOne);
}

TEST_P(Knn, GivesEachSampleKNeighboursOrAllThatAreNear) {
    Rows rows = normal_rows(3, 300, 16);
    for (auto& row : rows) row.front() = 50;  // all are near each other
    for (const int64_t k : {1, 10, 299, 1000}) {
        SCOPED_TRACE(k);
        const Graph graph = graph_of(rows, {.neighbours = k});
        if (!expected_) continue;
        for (const auto& row : graph) EXPECT_GE(std::ssize(row), std::min<int64_t>(k, 299));
    }
}

TEST_P(Knn, HasNoEdgesBetweenOppositeOrOrthogonalSamples) {
    const Graph graph = graph_of({{1, 0}, {-1, 0}, {0, 1}, {0, 3}}, {.neighbours = 3});
    if (!expected_) return;
    EXPECT_THAT(graph[0], ::testing::IsEmpty());
    EXPECT_THAT(graph[1], ::testing::IsEmpty());
    EXPECT_THAT(graph[2], ::testing::ElementsAre(::testing::Pair(3, kFixedPointOne)));
}

TEST_P(Knn, WritesAGraphOfOneSample) {
    const Graph graph = graph_of({{1, 2, 3}}, {.neighbours = 10});
    if (!expected_) return;
    EXPECT_THAT(graph, ::testing::ElementsAre(::testing::IsEmpty()));
}

TEST_P(Knn, DoesNotDependOnBatchesAndThreads) {
    const Rows rows = normal_rows(5, 900, 20);
    (void)graph_of(rows, {.neighbours = 9, .threads = 2, .batch_bytes = 100});
    (void)graph_of(rows, {.neighbours = 9, .threads = 1});
}

TEST_P(Knn, PutsRowsTogetherByParts) {
    const Rows rows = normal_rows(6, 800, 8);
    run(GetParam(), [&](Communicator& world) {
        const SharedFolder folder(world);
        MadeUp input(rows);
        const KnnOptions options{.neighbours = 6};
        const TileOwners owners(input.samples(), world.size());
        KnnRate rate;
        for (const uint64_t chunk : {0, 300, 1 << 20}) {
            auto lists = find_nearest(world, input, owners, options, rate);
            const NeighbourRows nearest(std::move(*lists));
            (void)write_symmetric_graph(world, owners, nearest, options, chunk,
                                        folder / std::to_string(chunk), input.corpus(), {});
        }
        if (world.rank() != 0) return;
        EXPECT_GT(rate.flop, 0);
        EXPECT_TRUE(read_file(folder / "0") == read_file(folder / "300"));
        EXPECT_TRUE(read_file(folder / "0") == read_file(folder / "1048576"));
    });
}

TEST_P(Knn, CentresEmbeddingsToTheSameBitsOnAnyRanks) {
    // A common part that hides what differs, in columns of very different size, one of them 0.
    Rows rows = normal_rows(5, 700, 6);
    for (auto& row : rows) {
        row[0] = 1000 + row[0];
        row[1] = -1e6F + 1e3F * row[1];
        row[2] = 0;
    }
    std::vector<double> mean(6);
    for (const auto& row : rows) {
        for (size_t j = 0; j < 6; ++j) mean[j] += double{row[j]} / 700;
    }
    std::vector<float> alone;
    World::threads(1).run([&](Communicator& c) {
        alone.resize(700 * 6);
        centre_embeddings(c, std::make_unique<MadeUp>(rows))->read(0, alone);
    });
    for (size_t i = 0; i < alone.size(); ++i) {
        const double x = rows[i / 6][i % 6];
        // Half a step for each of 700, and rounding to fp32.
        EXPECT_NEAR(alone[i], x - mean[i % 6], std::abs(x) * 0x1p-22) << i;
    }
    run(GetParam(), [&](Communicator& c) {
        std::vector<float> some(9 * 6);
        centre_embeddings(c, std::make_unique<MadeUp>(rows))->read(300, some);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), alone.begin() + 300 * 6));
    });
}

TEST_P(Knn, RecallIsTheShareOfTheNearestInLists) {
    const Rows rows = normal_rows(12, 900, 20);
    run(GetParam(), [&](Communicator& world) {
        MadeUp input(rows);
        const TileOwners owners(input.samples(), world.size());
        UnitRows own(owners.most_tiles(), input.width());
        own.read(input, owners.begin(world.rank()), owners.end(world.rank()));
        Context context({.threads = 2});
        KnnRate rate;
        for (const int64_t k : {10, 5}) {
            const auto lists = find_nearest(world, input, owners, {.neighbours = k}, rate);
            for (const int64_t samples : {1, 77, 900, 2000}) {
                const double recall =
                    measure_recall(world, context, own, *lists, owners, 10, samples);
                EXPECT_EQ(recall, static_cast<double>(k) / 10) << samples;
            }
        }
    });
}

#ifdef VOCABPIPE_HNSW
/// Share of each row's k nearest, by the double loop, that the graph has.
double share_of_nearest(const std::vector<std::vector<int32_t>>& similarities, const Graph& graph,
                        int64_t k) {
    int64_t found = 0;
    int64_t all = 0;
    for (size_t v = 0; v < graph.size(); ++v) {
        const Named named = nearest_of(similarities[v], static_cast<int64_t>(v), k, 1);
        for (const int64_t w : named.surely) found += graph[v].contains(w) ? 1 : 0;
        all += std::ssize(named.surely);
    }
    return static_cast<double>(found) / static_cast<double>(all);
}

/// Rows around some directions, as embeddings are.
Rows clustered_rows(uint64_t seed, size_t n, size_t width) {
    const Rows centres = normal_rows(seed, 40, width);
    Rows rows = normal_rows(seed + 1, n, width);
    for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < width; ++j) rows[i][j] += 2 * centres[i % 40][j];
    }
    return rows;
}

TEST_P(Knn, FindsNearlyAllNearestInIndices) {
    const Rows rows = clustered_rows(11, 1200, 24);
    const auto similarities = all_similarities(rows);
    run(GetParam(), [&](Communicator& world) {
        const SharedFolder folder(world);
        MadeUp input(rows);
        KnnOptions options{.neighbours = 10, .threads = 2, .hnsw = HnswOptions{}};
        const auto report = write_knn_graph(world, input, folder / "g", options);
        (void)write_knn_graph(world, input, folder / "again", options);
        options.hnsw = HnswOptions{.m = 2, .ef_construction = 2, .ef_search = 2};
        const auto poor = write_knn_graph(world, input, folder / "poor", options);
        if (world.rank() != 0) return;
        EXPECT_TRUE(read_file(folder / "g") == read_file(folder / "again"));
        const Graph graph = read_graph(folder / "g");
        for (size_t v = 0; v < rows.size(); ++v) {
            EXPECT_GE(graph[v].size(), 10U);
            for (const auto& [w, similarity] : graph[v]) {
                ASSERT_LE(std::abs(similarity - similarities[v][static_cast<size_t>(w)]), 1);
                ASSERT_EQ(graph[static_cast<size_t>(w)].at(static_cast<int64_t>(v)), similarity);
            }
        }
        // Edges have two ends, so a graph has more than the lists, whose recall is measured.
        EXPECT_GT(report->hnsw.recall, 0.99);
        EXPECT_GE(share_of_nearest(similarities, graph, 10), report->hnsw.recall - 0.005);
        EXPECT_LT(poor->hnsw.recall, 0.9);
    });
}

TEST_P(Knn, FindsAllOfFewSamplesInIndices) {
    for (const size_t n : {1, 2, 3, 300}) {
        SCOPED_TRACE(n);
        const Rows rows = normal_rows(n, n, 5);
        run(GetParam(), [&](Communicator& world) {
            const SharedFolder folder(world);
            MadeUp input(rows);
            KnnOptions options{.neighbours = 300, .threads = 3};
            (void)write_knn_graph(world, input, folder / "exact", options);
            options.hnsw = HnswOptions{.ef_search = 1};
            const auto report = write_knn_graph(world, input, folder / "g", options);
            EXPECT_EQ(report->hnsw.recall, 1);
            if (world.rank() != 0) return;
            const Graph exact = read_graph(folder / "exact");
            const Graph graph = read_graph(folder / "g");
            for (size_t v = 0; v < n; ++v) EXPECT_EQ(exact[v].size(), graph[v].size()) << v;
        });
    }
}
#endif

// With several ranks, most have only zeros.
TEST_P(Knn, CentresAColumnThatIsZeroOnSomeRanks) {
    Rows rows(8, std::vector<float>{0});
    rows[0][0] = 8;
    run(GetParam(), [&](Communicator& c) {
        std::vector<float> centred(8);
        centre_embeddings(c, std::make_unique<MadeUp>(rows))->read(0, centred);
        EXPECT_THAT(centred, ::testing::ElementsAre(7, -1, -1, -1, -1, -1, -1, -1));
    });
}

TEST_P(Knn, RefusesRowsWithoutADirection) {
    for (const float bad :
         {0.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        Rows rows = normal_rows(7, 400, 4);
        rows[333].assign(4, bad);
        run(GetParam(), [&](Communicator& world) {
            const SharedFolder folder(world);
            MadeUp input(rows);
            try {
                (void)write_knn_graph(world, input, folder / "graph", {});
                ADD_FAILURE() << "accepted " << bad;
            } catch (const Error& error) {
                EXPECT_EQ(error.exit_code(), ExitCode::input_file);
                EXPECT_THAT(error.what(),
                            ::testing::StartsWith("made-up: embedding of sample 333"));
            }
            EXPECT_FALSE(std::filesystem::exists(folder / "graph"));
        });
    }
}

TEST_P(Knn, RefusesMemoryThatThePlanExceeds) {
    const Rows rows = normal_rows(8, 300, 4);
    run(GetParam(), [&](Communicator& world) {
        const SharedFolder folder(world);
        MadeUp input(rows);
        const uint64_t needed = plan_knn_memory(300, 4, world.size(), {}).total();
        try {
            (void)write_knn_graph(world, input, folder / "graph", {.memory = needed - 1});
            ADD_FAILURE() << "accepted";
        } catch (const Error& error) {
            EXPECT_EQ(error.exit_code(), ExitCode::out_of_memory);
            EXPECT_THAT(error.what(),
                        ::testing::StartsWith("--memory " + std::to_string(needed - 1)));
        }
        EXPECT_FALSE(std::filesystem::exists(folder / "graph"));
        EXPECT_TRUE(write_knn_graph(world, input, folder / "graph", {.memory = needed}));
    });
}

TEST_P(Knn, EndsOnAllRanksWhereOneWasToldTo) {
    const Rows rows = normal_rows(9, 300, 4);
    run(GetParam(), [&](Communicator& world) {
        const SharedFolder folder(world);
        MadeUp input(rows);
        KnnOptions options{.told_to_end = [&] { return world.rank() == world.size() - 1; }};
        EXPECT_FALSE(write_knn_graph(world, input, folder / "graph", options));
#ifdef VOCABPIPE_HNSW
        options.hnsw = HnswOptions{};
        EXPECT_FALSE(write_knn_graph(world, input, folder / "graph", options));
#endif
        EXPECT_FALSE(std::filesystem::exists(folder / "graph"));
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Knn, ::testing::ValuesIn(kKnnRanks), [](const auto& ranks) {
    return kKnnThreads ? "p" + std::to_string(ranks.param) : std::string("mpi");
});

// A piece of 4 MiB is on its way out, and one on its way in.
TEST(KnnMemory, HoldsMessagesOnlyWhereThereAreOtherRanks) {
    const auto messages = [](int ranks) {
        uint64_t bytes = 0;
        for (const auto& [name, of] : plan_knn_memory(10'000, 64, ranks, {}).search) {
            if (name == "messages") bytes += of;
        }
        return bytes;
    };
    EXPECT_EQ(messages(1), 0U);
    EXPECT_EQ(messages(2), uint64_t{2} * 4 << 20);
    EXPECT_EQ(messages(5), uint64_t{2} * 4 << 20);
}

TEST(KnnMemory, AsksForTheRanksThatWouldDo) {
    const uint64_t of_four = plan_knn_memory(1'000'000, 1024, 4, {}).total();
    try {
        check_knn_memory(1'000'000, 1024, 1, {.memory = of_four});
        FAIL() << "accepted";
    } catch (const OutOfMemoryError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("use 4 ranks"));
    }
    EXPECT_NO_THROW(check_knn_memory(1'000'000, 1024, 4, {.memory = of_four}));
}

}  // namespace
}  // namespace vocabpipe::testing
