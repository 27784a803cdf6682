// SPDX-License-Identifier: Apache-2.0
// Every result that subset.py has recorded, for several numbers of ranks. One source, two programs:
// worlds of threads, and with VOCABPIPE_TEST_MPI the processes of one mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "src/select/distributed_greedy.hpp"
#include "src/select/graph_check.hpp"
#include "src/select/partition.hpp"
#include "src/select/selection.hpp"
#include "tests/select/select_problem.hpp"
#include "tests/select/sha256.hpp"
#include "tests/select/shared_folder.hpp"

namespace vocabpipe::testing {
namespace {

using nlohmann::json;

const json& oracles() {
    static const json document = json::parse(std::ifstream(VOCABPIPE_SUBSET_ORACLES));
    return document;
}

#ifdef VOCABPIPE_TEST_MPI
constexpr bool kThreads = false;
#else
constexpr bool kThreads = true;
#endif

/// The parameter is the number of ranks; under mpirun it is what mpirun started.
class SelectOracles : public ::testing::TestWithParam<int> {
protected:
    void run(const std::function<void(Communicator&)>& body) const {
        const WaitOptions wait{.timeout_seconds = 60};
        World world = kThreads ? World::threads(GetParam(), wait) : World::mpi(wait);
        world.run(body);
    }
};

SelectProblem problem_of(const json& record) {
    SelectProblem problem{.utility = record["u"].get<std::vector<int32_t>>(),
                          .objective = {.alpha = record["alpha"], .beta = record["beta"]}};
    for (const json& edge : record["edges"]) {
        problem.edges.push_back(edge.get<std::array<int64_t, 3>>());
    }
    return problem;
}

BoundingRule rule_of(const json& record) {
    const std::map<std::string, BoundingRule::Kind> kinds{
        {"exact", BoundingRule::Kind::exact},
        {"bernoulli", BoundingRule::Kind::bernoulli},
        {"quota", BoundingRule::Kind::quota},
        {"weighted", BoundingRule::Kind::weighted}};
    return {.kind = kinds.at(record["mode"]),
            .share = {.numerator = record["p"][0], .denominator = record["p"][1]}};
}

/// What a test needs of a rank: a graph in a file, and the state of its samples.
struct OnRank {
    OnRank(Communicator& world, const std::string& path, const SelectProblem& problem,
           uint64_t seed)
        : problem(problem),
          graph(path),
          context{.world = world,
                  .graph = graph,
                  .objective = problem.objective,
                  .seed = seed,
                  // Many exchanges, of small graphs as well.
                  .batch_bytes = problem.size() < 100 ? uint64_t{64} : uint64_t{8192}},
          state(context.memory, context.first(), context.last()) {
        for (int64_t v = state.first(); v < state.last(); ++v) {
            state.edit_u_max(v) = problem.objective.alpha * problem.utility[static_cast<size_t>(v)];
        }
    }
    [[nodiscard]] ReadUtilities utilities() const {
        return [this](int64_t first, std::span<int32_t> to) {
            std::copy_n(problem.utility.begin() + first, to.size(), to.begin());
        };
    }
    [[nodiscard]] BoundingReport bound(const BoundingRule& rule, int64_t k) {
        const GraphSizes sizes = GraphSizes::of(context);
        Bounding bounding(context, state, rule, k, sizes.own_entries, sizes.longest_row);
        GraphRows rows(graph);
        for (int64_t v = state.first(); v < state.last(); ++v) bounding.begin_row(rows.at(v));
        return bounding.run();
    }

    const SelectProblem& problem;
    GraphFile graph;
    SelectContext context;
    SelectionState state;
};

/// All of it, as vocabpipe select run does it.
struct Selected {
    std::vector<int64_t> set;
    int64_t objective = 0;
    SelectionProgress progress;
    Certificate certificate;
};
Selected select(Communicator& world, const std::string& path, const SelectProblem& problem,
                uint64_t seed, const SelectionOptions& options) {
    OnRank rank(world, path, problem, seed);
    const GraphSizes sizes = GraphSizes::of(rank.context);
    const MemoryPlan plan = plan_memory(sizes, world.size(), options.rounds.parts, options.bounding,
                                        rank.context.batch_bytes);
    Selection selection(rank.context, sizes, plan, rank.utilities(), options, nullptr);
    selection.run();
    Selected result{.set = all_with(world, selection.state(), Decision::selected),
                    .objective = selection.objective(),
                    .progress = selection.progress(),
                    .certificate = selection.certificate().value()};
    const auto open = all_with(world, selection.state(), Decision::open);
    result.set.insert(result.set.end(), open.begin(), open.end());
    std::ranges::sort(result.set);
    return result;
}

TEST(SelectHash, IsThatOfSubsetPy) {
    for (const json& vector : oracles()["hash_vectors"]) {
        const auto number = [&](size_t i) { return vector[i].get<uint64_t>(); };
        EXPECT_EQ(std::to_string(hash_of(number(0), number(1), number(2))),
                  vector[3].get<std::string>());
    }
    EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_P(SelectOracles, BoundingDecidesAsRecorded) {
    run([](Communicator& world) {
        const SharedFolder folder(world);
        for (const json& record : oracles()["small"]) {
            const SelectProblem problem = problem_of(record);
            const std::string path = folder / record["name"].get<std::string>();
            write_graph(world, path, problem);
            for (const json& want : record["bounding"]) {
                OnRank rank(world, path, problem, record["seed"]);
                const BoundingReport report = rank.bound(rule_of(want), record["k"]);
                json trace = json::array();
                for (const BoundingStep& step : report.steps) {
                    trace.push_back({step.grow ? "grow" : "shrink", step.threshold, step.decided});
                }
                const std::string what = path + " " + want["mode"].get<std::string>();
                EXPECT_EQ(trace, want["trace"]) << what;
                EXPECT_EQ(report.k_left, want["k_left"]) << what;
                EXPECT_EQ(json(all_with(world, rank.state, Decision::selected)), want["selected"])
                    << what;
                EXPECT_EQ(json(all_with(world, rank.state, Decision::open)), want["unassigned"])
                    << what;
                EXPECT_LE(sum_over_ranks(world, rank.context.messages.messages),
                          rank.graph.entries())
                    << what;
                for (int64_t v = rank.state.first(); v < rank.state.last(); ++v) {
                    EXPECT_FALSE(rank.state.marked(v)) << what;
                }
                const Selected all = select(world, path, problem, record["seed"],
                                            {.k = record["k"], .bounding = rule_of(want)});
                EXPECT_EQ(json(all.set), want["completed"]) << what;
                EXPECT_EQ(all.objective, want["objective"]) << what;
                EXPECT_EQ(all.objective, problem.value(all.set)) << what;
                EXPECT_LE(all.objective, record["optimum"]["objective"]) << what;
                EXPECT_GE(all.certificate.bound.value(), record["optimum"]["objective"]) << what;
            }
        }
    });
}

/// Runs the rounds of a record and compares every part and what it chose.
void compare_rounds(Communicator& world, const std::string& path, const SelectProblem& problem,
                    const json& record, const json& want) {
    OnRank rank(world, path, problem, record["seed"]);
    const int64_t n = problem.size();
    const RoundOptions options{
        .parts = want["partitions"], .rounds = want["rounds"], .adaptive = want["adaptive"]};
    GreedyRounds::PartOf first_parts;
    if (want.contains("first")) {
        first_parts = [&](int64_t node) {
            for (size_t part = 0; part < want["first"].size(); ++part) {
                for (const json& one : want["first"][part]) {
                    if (one == node) return static_cast<int64_t>(part);
                }
            }
            return int64_t{-1};
        };
    }
    int64_t open = n;
    for (const json& info : want["rounds_info"]) {
        // Edges inside of a part that have no room are read again.
        for (const uint64_t edge_bytes : {uint64_t{8}, UINT64_MAX}) {
            OnRank again(world, path, problem, record["seed"]);
            for (int64_t v = again.state.first(); v < again.state.last(); ++v) {
                again.state.decide(v, rank.state.decision(v));
            }
            GreedyRounds greedy(again.context, again.state, edge_bytes);
            greedy.observe([&](int64_t round, int64_t part, std::span<const PartNode> nodes,
                               std::span<const int64_t> chosen) {
                EXPECT_EQ(round, info["round"]);
                json in = json::array();
                for (const PartNode& node : nodes) in.push_back(node.node);
                const auto at = static_cast<size_t>(part);
                EXPECT_EQ(in, info["parts"][at]) << path;
                EXPECT_EQ(json(std::vector<int64_t>(chosen.begin(), chosen.end())),
                          info["picked"][at])
                    << path;
            });
            RoundReport round = plan_round(options, info["round"], n, open, record["k"]);
            EXPECT_EQ(round.input, info["input"]);
            EXPECT_EQ(round.target, info["target"]);
            EXPECT_EQ(round.quota, info["quota"]);
            EXPECT_EQ(round.parts, info["partitions"]);
            greedy.run(round, 0, {}, first_parts);
            EXPECT_EQ(round.kept, info["kept"]);
            if (edge_bytes != UINT64_MAX) continue;
            for (int64_t v = again.state.first(); v < again.state.last(); ++v) {
                rank.state.decide(v, again.state.decision(v));
            }
            open = round.kept;
        }
    }
    if (open > record["k"].get<int64_t>()) {
        keep_at_random(rank.context, rank.state, record["k"], open, options.rounds + 1);
    }
    EXPECT_EQ(json(all_with(world, rank.state, Decision::open)), want["selected"]) << path;
    EXPECT_EQ(objective_of(rank.context, rank.state, rank.utilities()), want["objective"]) << path;
}

TEST_P(SelectOracles, PartsChooseAsRecorded) {
    run([](Communicator& world) {
        const SharedFolder folder(world);
        for (const json& record : oracles()["small"]) {
            const SelectProblem problem = problem_of(record);
            const std::string path = folder / record["name"].get<std::string>();
            write_graph(world, path, problem);
            for (const json& want : record["distributed"]) {
                compare_rounds(world, path, problem, record, want);
            }
            compare_rounds(world, path, problem, record, record["worst_case_first_partition"]);
        }
    });
}

TEST_P(SelectOracles, GreedyInOnePartChoosesAsRecorded) {
    run([](Communicator& world) {
        const SharedFolder folder(world);
        for (const json& record : oracles()["small"]) {
            const SelectProblem problem = problem_of(record);
            const std::string path = folder / record["name"].get<std::string>();
            write_graph(world, path, problem);
            OnRank rank(world, path, problem, record["seed"]);
            GreedyRounds greedy(rank.context, rank.state, UINT64_MAX);
            greedy.observe(
                [&](int64_t, int64_t, std::span<const PartNode>, std::span<const int64_t> chosen) {
                    EXPECT_EQ(json(std::vector<int64_t>(chosen.begin(), chosen.end())),
                              record["greedy"]["order"]);
                });
            RoundReport round = plan_round({}, 1, problem.size(), problem.size(), record["k"]);
            greedy.run(round);
            EXPECT_EQ(objective_of(rank.context, rank.state, rank.utilities()),
                      record["greedy"]["objective"]);
        }
    });
}

TEST_P(SelectOracles, LargerGraphsGiveTheRecordedSets) {
    for (const json& record : oracles()["generated"]) {
        const json& g = record["generator"];
        const SelectProblem problem =
            clustered_problem(g["seed"], g["n"], g["dim"], g["clusters"], g["knn"],
                              {.alpha = g["alpha"], .beta = g["beta"]});
        EXPECT_EQ(sha256(problem.text()), record["graph_sha256"].get<std::string>());
        run([&](Communicator& world) {
            const SharedFolder folder(world);
            const std::string path = folder / "graph";
            write_graph(world, path, problem);
            for (const json& selection : record["selections"]) {
                const int64_t k = selection["k"];
                for (const json& want : selection["bounding"]) {
                    const Selected found = select(world, path, problem, want["seed"],
                                                  {.k = k, .bounding = rule_of(want)});
                    const BoundingReport& report = found.progress.bounding;
                    EXPECT_EQ(report.selected, want["included"]);
                    EXPECT_EQ(report.discarded, want["excluded"]);
                    EXPECT_EQ(report.k_left, want["k_left"]);
                    const auto grown = std::ranges::count_if(
                        report.steps, [](const BoundingStep& step) { return step.grow; });
                    EXPECT_EQ(grown, want["grow_calls"]);
                    EXPECT_EQ(std::ssize(report.steps) - grown, want["shrink_calls"]);
                    EXPECT_EQ(found.objective, want["objective"]);
                    EXPECT_EQ(sha256(lines_of(found.set)), want["set_sha256"].get<std::string>());
                    OnRank rank(world, path, problem, want["seed"]);
                    (void)rank.bound(rule_of(want), k);
                    EXPECT_EQ(sha256(lines_of(all_with(world, rank.state, Decision::selected))),
                              want["selected_sha256"].get<std::string>());
                    EXPECT_EQ(sha256(lines_of(all_with(world, rank.state, Decision::open))),
                              want["unassigned_sha256"].get<std::string>());
                }
                for (const json& want : selection["distributed"]) {
                    const Selected found = select(world, path, problem, want["seed"],
                                                  {.k = k,
                                                   .bounding = {.kind = BoundingRule::Kind::off},
                                                   .rounds = {.parts = want["partitions"],
                                                              .rounds = want["rounds"],
                                                              .adaptive = want["adaptive"]}});
                    EXPECT_EQ(found.objective, want["objective"]);
                    EXPECT_EQ(sha256(lines_of(found.set)), want["set_sha256"].get<std::string>());
                    if (want["partitions"] == 1) continue;
                    json parts = json::array();
                    for (const RoundReport& round : found.progress.rounds) {
                        parts.push_back(round.parts);
                    }
                    EXPECT_EQ(parts, want["parts_per_round"]);
                }
            }
        });
    }
}

#ifdef VOCABPIPE_TEST_MPI
INSTANTIATE_TEST_SUITE_P(Mpi, SelectOracles, ::testing::Values(0));
#else
INSTANTIATE_TEST_SUITE_P(Threads, SelectOracles, ::testing::Values(1, 2, 3, 4, 8));
#endif

}  // namespace
}  // namespace vocabpipe::testing
