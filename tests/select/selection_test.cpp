// SPDX-License-Identifier: Apache-2.0
// A selection as a whole: for any number of ranks, ended and gone on with, at the limits of k.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "src/select/files/subset_file.hpp"
#include "src/select/greedy.hpp"
#include "src/select/selection.hpp"
#include "tests/select/run_selection.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

class Selections : public ::testing::Test {
protected:
    void write(const SelectProblem& problem) const {
        World::threads(1).run(
            [&](Communicator& world) { write_graph(world, folder_ / "graph", problem); });
    }
    TempFolder folder_;
};

TEST_F(Selections, AreTheSameBytesForAnyNumberOfRanks) {
    // Few different values: many ties. Some samples have no neighbours.
    SelectProblem problem = random_problem(7, 600, 3, 4, 3);
    std::erase_if(problem.edges, [](const auto& edge) { return edge[0] % 10 == 0; });
    write(problem);
    for (const char* rule : {"off", "exact", "bernoulli:0.4", "quota:0.4", "weighted:0.4"}) {
        for (const bool adaptive : {false, true}) {
            const SelectionOptions options{
                .k = 200,
                .bounding = BoundingRule::from(rule, "--bounding"),
                .rounds = {.parts = 7, .rounds = 4, .adaptive = adaptive}};
            for (const int ranks : {1, 2, 3, 4, 8}) {
                const std::string output = folder_ / ("subset" + std::to_string(ranks));
                run_selection(folder_ / "", problem, options, output, {.ranks = ranks});
                EXPECT_EQ(SubsetReader(output).count(), 200);
                EXPECT_EQ(read_file(output), read_file(folder_ / "subset1")) << rule << ranks;
            }
        }
    }
}

TEST_F(Selections, FromAFileOfVersion2AreThoseFromVersion1) {
    const SelectProblem problem = random_problem(11, 500, 4, 50, 30);
    for (const char* rule : {"exact", "quota:0.4"}) {
        const SelectionOptions options{.k = 150,
                                       .bounding = BoundingRule::from(rule, "--bounding"),
                                       .rounds = {.parts = 5, .rounds = 3}};
        write(problem);
        run_selection(folder_ / "", problem, options, folder_ / "narrow");
        const auto narrow = std::filesystem::file_size(folder_ / "graph");
        World::threads(1).run(
            [&](Communicator& world) { write_graph(world, folder_ / "graph", problem, 0); });
        // A byte more per entry, and the name of a tensor.
        const auto more = std::filesystem::file_size(folder_ / "graph") - narrow;
        EXPECT_GE(more, 2 * problem.edges.size());
        EXPECT_LT(more, 2 * problem.edges.size() + 200);
        for (const int ranks : {1, 3}) {
            run_selection(folder_ / "", problem, options, folder_ / "wide", {.ranks = ranks});
            EXPECT_EQ(read_file(folder_ / "wide"), read_file(folder_ / "narrow")) << rule << ranks;
        }
    }
}

TEST_F(Selections, OfNoneAllOrOneHaveThatMany) {
    const SelectProblem problem = random_problem(8, 40, 3, 9, 9);
    write(problem);
    for (const int64_t k : {0, 1, 39, 40}) {
        for (const char* rule : {"off", "exact", "quota:0.2"}) {
            for (const int64_t parts : {1, 3, 40}) {
                for (const int ranks : {1, 3}) {
                    run_selection(folder_ / "", problem,
                                  {.k = k,
                                   .bounding = BoundingRule::from(rule, "--bounding"),
                                   .rounds = {.parts = parts, .rounds = 3}},
                                  folder_ / "subset", {.ranks = ranks});
                    EXPECT_EQ(SubsetReader(folder_ / "subset").count(), k);
                }
            }
        }
    }
}

TEST_F(Selections, OfSamplesWithoutNeighboursAreTheMostUsefulOnes) {
    SelectProblem problem = random_problem(9, 50, 1, 1000, 1);
    problem.edges.clear();
    write(problem);
    run_selection(folder_ / "", problem, {.k = 10}, folder_ / "subset");
    std::vector<int64_t> order(50);
    for (int64_t v = 0; v < 50; ++v) order[static_cast<size_t>(v)] = v;
    std::ranges::stable_sort(order, std::greater(),
                             [&](int64_t v) { return problem.utility[static_cast<size_t>(v)]; });
    order.resize(10);
    std::ranges::sort(order);
    EXPECT_EQ(SubsetReader(folder_ / "subset").all(), order);
}

TEST_F(Selections, OfNoSamplesAreEmpty) {
    write({});
    run_selection(folder_ / "", {}, {.k = 0}, folder_ / "subset");
    EXPECT_EQ(SubsetReader(folder_ / "subset").count(), 0);
}

TEST_F(Selections, GoOnFromWhereTheyWereEndedOnAnyNumberOfRanks) {
    const SelectProblem problem = random_problem(10, 500, 4, 1000, 1000);
    write(problem);
    const SelectionOptions options{.k = 150,
                                   .bounding = BoundingRule::from("quota:0.3", "--bounding"),
                                   .rounds = {.parts = 5, .rounds = 4, .adaptive = true}};
    run_selection(folder_ / "", problem, options, folder_ / "whole");
    for (int end_after = 0; end_after < 5; ++end_after) {
        const std::string state = folder_ / "state";
        EXPECT_THROW(run_selection(folder_ / "", problem, options, folder_ / "subset",
                                   {.ranks = 3, .state = state, .end_after = end_after}),
                     Ended);
        EXPECT_FALSE(std::filesystem::exists(folder_ / "subset"));
        EXPECT_TRUE(
            run_selection(folder_ / "", problem, options, folder_ / "subset", {.state = state})
                .resumed);
        EXPECT_EQ(read_file(folder_ / "subset"), read_file(folder_ / "whole"));
        EXPECT_FALSE(std::filesystem::exists(state));
        std::filesystem::remove(folder_ / "subset");
    }
}

TEST_F(Selections, OfOtherInputsOrFlagsDoNotGoOn) {
    SelectProblem problem = random_problem(11, 300, 4, 1000, 1000);
    write(problem);
    const SelectionOptions options{.k = 100, .rounds = {.parts = 4, .rounds = 4}};
    const std::string state = folder_ / "state";
    EXPECT_THROW(run_selection(folder_ / "", problem, options, folder_ / "subset",
                               {.state = state, .end_after = 1}),
                 Ended);
    const auto refusal = [&](uint64_t seed) -> std::string {
        try {
            run_selection(folder_ / "", problem, options, folder_ / "subset",
                          {.state = state, .seed = seed});
        } catch (const Error& error) {
            EXPECT_EQ(error.exit_code(), ExitCode::usage);
            return error.what();
        }
        return {};
    };
    EXPECT_THAT(refusal(2), HasSubstr("was begun with --seed 1, not 2"));
    problem.utility[3] ^= 1;
    EXPECT_THAT(refusal(1), HasSubstr("was begun with another --utility"));
    problem.utility[3] ^= 1;
    problem.edges[5][2] ^= 1;
    write(problem);
    EXPECT_THAT(refusal(1), HasSubstr("was begun with another --graph"));
    problem.edges[5][2] ^= 1;
    write(problem);
    EXPECT_EQ(refusal(1), "");
}

TEST_F(Selections, InAFolderThatAnotherOneHasAreRefused) {
    const std::string state = folder_ / "state";
    World::threads(2).run([&](Communicator& world) {
        SelectionFolder first(world, state, {});
        try {
            SelectionFolder second(world, state, {});
            FAIL();
        } catch (const Error& error) {
            EXPECT_THAT(error.what(), HasSubstr("another run works here"));
        }
        world.barrier();
    });
    // Nothing was saved: nothing is left.
    EXPECT_FALSE(std::filesystem::exists(state));
}

// Saved after every step and every few parts; ended again and again, with other numbers of ranks.
TEST_F(Selections, GoOnFromTheMiddleOfBoundingAndOfRounds) {
    const SelectProblem problem = random_problem(32, 500, 4, 1000, 300);
    write(problem);
    const std::string state = folder_ / "state";
    for (const char* rule : {"exact", "bernoulli:0.4", "quota:0.4", "weighted:0.4"}) {
        const SelectionOptions options{.k = 150,
                                       .bounding = BoundingRule::from(rule, "--bounding"),
                                       .rounds = {.parts = 7, .rounds = 2},
                                       .save_seconds = 0};
        const SelectionResult whole =
            run_selection(folder_ / "", problem, options, folder_ / "whole");
        const auto steps = static_cast<int>(whole.progress.bounding.steps.size());
        ASSERT_GT(steps, 4);
        // Two steps a run, then at most three of the seven parts of each round.
        const int ends = steps / 2 + 6;
        std::optional<SelectionResult> result;
        for (int ended = 0; !result; ++ended) {
            const RunOptions run{.ranks = 1 + ended % 3,
                                 .state = state,
                                 .end_after = ended < ends ? 1 : -1,
                                 .block = ended % 2 == 0 ? 0 : 60};
            try {
                result = run_selection(folder_ / "", problem, options, folder_ / "subset", run);
                EXPECT_EQ(ended, ends) << rule;
            } catch (const Ended&) {
            }
        }
        EXPECT_TRUE(result->resumed);
        EXPECT_EQ(result->progress.bounding, whole.progress.bounding) << rule;
        EXPECT_EQ(result->progress.rounds, whole.progress.rounds) << rule;
        EXPECT_EQ(read_file(folder_ / "subset"), read_file(folder_ / "whole")) << rule;
    }
}

/// Ends after the first phase; the state is what a killed run leaves.
void begin_selection(const std::string& folder, const SelectProblem& problem,
                     const std::string& state) {
    EXPECT_THROW(run_selection(folder, problem, {.k = 100}, folder + "subset",
                               {.state = state, .end_after = 0}),
                 Ended);
    ASSERT_TRUE(std::filesystem::exists(state + "/state.safetensors"));
}

TEST_F(Selections, OfADamagedStateAreRefused) {
    const SelectProblem problem = random_problem(13, 500, 4, 1000, 1000);
    write(problem);
    const std::string state = folder_ / "state";
    begin_selection(folder_ / "", problem, state);
    const std::string file = state + "/state.safetensors";
    const std::string whole = read_file(file);
    int refused = 0;
    // The last bytes are decisions, those before them bounds.
    for (const size_t from_end : {1, 77, 499, 501, 1000, 4000}) {
        std::string changed = whole;
        changed[changed.size() - from_end] ^= 1;
        write_file(file, changed);
        try {
            run_selection(folder_ / "", problem, {.k = 100}, folder_ / "subset",
                          {.ranks = 1 + refused % 3, .state = state});
        } catch (const Error& error) {
            EXPECT_EQ(error.exit_code(), ExitCode::input_file);
            EXPECT_THAT(error.what(), HasSubstr("state.safetensors"));
            ++refused;
        }
    }
    EXPECT_EQ(refused, 6);
    write_file(file, whole);
    EXPECT_TRUE(run_selection(folder_ / "", problem, {.k = 100}, folder_ / "subset",
                              {.ranks = 3, .state = state})
                    .resumed);
}

TEST_F(Selections, TakeNoLockFileOfOthers) {
    const std::string state = folder_ / "state";
    const auto refusal = [&] {
        std::string message;
        World::threads(2).run([&](Communicator& world) {
            try {
                const SelectionFolder folder(world, state, {});
            } catch (const Error& error) {
                if (world.rank() == 0) message = error.what();
            }
        });
        return message;
    };
    std::filesystem::create_directory(state);
    write_file(state + "/lock", "the key is under the mat\n");
    EXPECT_THAT(refusal(), HasSubstr("has a file \"lock\" that is not of vocabpipe select run"));
    EXPECT_EQ(read_file(state + "/lock"), "the key is under the mat\n");
    std::filesystem::remove(state + "/lock");
    std::filesystem::create_symlink("nowhere/at/all", state + "/lock");
    EXPECT_THAT(refusal(), HasSubstr("lock: cannot create"));
    std::filesystem::remove(state + "/lock");
    write_file(state + "/state.safetensors.partial-99-0", "of a killed run");
    EXPECT_EQ(refusal(), "");
    EXPECT_FALSE(std::filesystem::exists(state));
}

// Every sample has one neighbour, so that before each step, open samples have as many entries as
// there are of them.
TEST_F(Selections, CountTheEntriesOfSamplesThatWereOpenBeforeEachStep) {
    constexpr int64_t kSamples = 12;
    SelectProblem problem;
    for (int64_t v = 0; v < kSamples; ++v) {
        problem.utility.push_back(static_cast<int32_t>(100 + 10 * v));
        if (v % 2 == 1) problem.edges.push_back({v - 1, v, 200});
    }
    write(problem);
    const GraphFile graph(folder_ / "graph");
    for (const int ranks : {1, 3}) {
        World::threads(ranks).run([&](Communicator& world) {
            SelectContext context{.world = world, .graph = graph, .objective = problem.objective};
            const GraphSizes sizes = GraphSizes::of(context);
            const SelectionOptions options{.k = 5,
                                           .bounding = BoundingRule::from("exact", "--bounding")};
            const MemoryPlan plan =
                plan_memory(sizes, ranks, 1, options.bounding, context.batch_bytes);
            const auto utilities = [&](int64_t first, std::span<int32_t> to) {
                std::copy_n(problem.utility.begin() + first, to.size(), to.begin());
            };
            Selection selection(context, sizes, plan, utilities, options, nullptr);
            selection.run();
            const BoundingReport& bounding = selection.progress().bounding;
            ASSERT_GT(bounding.steps.size(), 1U);
            ASSERT_GT(bounding.steps.front().decided, 0);
            int64_t open = kSamples;
            int64_t entries = 0;
            for (const BoundingStep& step : bounding.steps) {
                entries += open;
                open -= step.decided;
            }
            EXPECT_EQ(bounding.open, open);
            EXPECT_EQ(bounding.rejoin_tuples, entries);
        });
    }
}

TEST_F(Selections, ChooseGreedilyFromNothingNothing) {
    const SelectProblem problem = random_problem(13, 4, 2, 9, 1);
    write(problem);
    const GraphFile graph(folder_ / "graph");
    World::threads(1).run([&](Communicator& world) {
        SelectContext context{.world = world, .graph = graph, .objective = problem.objective};
        const auto chosen = [&](std::vector<PartNode> nodes, int64_t count) {
            const PartEdges edges(context.memory, nodes, 1000);
            return greedy(context, nodes, count, edges);
        };
        EXPECT_EQ(chosen({}, 0), std::vector<int64_t>{});
        EXPECT_EQ(chosen({}, 3), std::vector<int64_t>{});
        EXPECT_EQ(chosen({{.gain = 5, .node = 2}}, 0), std::vector<int64_t>{});
        EXPECT_EQ(chosen({{.gain = 5, .node = 2}}, 3), std::vector<int64_t>{2});
    });
}

/// Bytes that this process has read; none if the system does not tell.
std::optional<int64_t> bytes_read() {
    std::ifstream file("/proc/self/io");
    std::string name;
    int64_t bytes = 0;
    while (file >> name >> bytes) {
        if (name == "rchar:") return bytes;
    }
    return std::nullopt;
}

// Receivers of messages lie all over the file, and messages come in many batches.
TEST_F(Selections, WithAQuotaReadTheGraphAtMostThreeTimesPerStepOfBounding) {
    const SelectProblem problem = random_problem(14, 40'000, 6, 1 << 20, 1 << 19);
    write(problem);
    const GraphFile graph(folder_ / "graph");
    const auto size = static_cast<int64_t>(std::filesystem::file_size(folder_ / "graph"));
    ASSERT_GT(size, int64_t{3} << 20) << "more than readers hold at once";
    for (const char* text : {"quota:0.3", "weighted:0.3"}) {
        World::threads(1).run([&](Communicator& world) {
            SelectContext context{.world = world,
                                  .graph = graph,
                                  .objective = problem.objective,
                                  .batch_bytes = 4096};
            const GraphSizes sizes = GraphSizes::of(context);
            SelectionState state(context.memory, 0, problem.size());
            for (int64_t v = 0; v < problem.size(); ++v) {
                state.edit_u_max(v) =
                    problem.objective.alpha * problem.utility[static_cast<size_t>(v)];
            }
            Bounding bounding(context, state, BoundingRule::from(text, "--bounding"),
                              problem.size() / 3, sizes.own_entries, sizes.longest_row);
            GraphRows rows(graph);
            for (int64_t v = 0; v < problem.size(); ++v) bounding.begin_row(rows.at(v));
            const auto before = bytes_read();
            if (!before) GTEST_SKIP() << "no /proc/self/io";
            const BoundingReport report = bounding.run();
            const auto steps = std::ssize(report.steps);
            EXPECT_GT(steps, 20);
            EXPECT_GT(report.selected + report.discarded, problem.size() / 2);
            const auto reads = static_cast<double>(bytes_read().value() - *before) /
                               static_cast<double>(steps * size);
            EXPECT_LE(reads, 3) << text;
        });
    }
}

TEST_F(Selections, HoldWhatWasPlannedAndNoMore) {
    const SelectProblem problem = random_problem(12, 2000, 6, 1000, 1000);
    write(problem);
    for (const int ranks : {1, 3}) {
        run_selection(folder_ / "", problem,
                      {.k = 600,
                       .bounding = BoundingRule::from("quota:0.3", "--bounding"),
                       .rounds = {.parts = 6, .rounds = 3}},
                      folder_ / "subset", {.ranks = ranks});
    }
    EXPECT_THROW(
        run_selection(folder_ / "", problem, {.k = 600}, folder_ / "subset", {.memory = 100'000}),
        OutOfMemoryError);
}

}  // namespace
}  // namespace vocabpipe::testing
