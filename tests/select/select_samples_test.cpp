// SPDX-License-Identifier: Apache-2.0
// Selection by the public interface: graphs in memory and in files, any number of ranks, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/select/files/subset_file.hpp"
#include "src/select/selection_run.hpp"
#include "tests/select/run_selection.hpp"
#include "tests/select/select_calls.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/select_samples.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

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

// run_selection() puts a Selection together by itself, so no option is lost on the way to it.
TEST_F(SelectSamples, ChooseWhatASelectionBesideThemChoosesOnAnyNumberOfRanks) {
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
                Phases phases;
                options_.progress = phases.taker();
                const Chosen chosen = choose(*graph, *utilities, options_, ranks);
                EXPECT_THAT(phases.names(), IsSupersetOf({"row lengths", "reading the graph",
                                                          "parts", "certificate"}));
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

TEST_F(SelectSamples, OutputIsTheFileOfTheTool) {
    const SampleGraph graph(problem_.size(), edges_);
    const SampleUtilities utilities(worth_);
    const Chosen in_memory = choose(graph, utilities, options_, 2);
    options_.output = folder_ / "subset";
    options_.state = folder_ / "state";
    for (int time = 0; time < 2; ++time) {  // an older subset is replaced
        const Chosen written = choose(graph, utilities, options_, 2);
        EXPECT_TRUE(written.samples.empty());
        EXPECT_EQ(SubsetReader(options_.output).all(), in_memory.samples);
        EXPECT_EQ(written.subset.objective, in_memory.subset.objective);
    }
    EXPECT_EQ(folder_.names(), std::set<std::string>{"subset"});  // the state is removed at the end
}

TEST_F(SelectSamples, OutputReplacesNoInputAndNoFileOfAnotherKind) {
    World::threads(1).run([&](Communicator& world) {
        write_graph(world, folder_ / "graph", problem_);
        write_utility(world, folder_ / "utility", problem_);
    });
    write_file(folder_ / "letter", "Dear reader");
    const SampleGraph graph(folder_ / "graph");
    const SampleUtilities utilities(folder_ / "utility");
    for (const std::string name : {"graph", "utility", "letter"}) {
        const std::string before = read_file(folder_ / name);
        options_.output = folder_ / name;
        EXPECT_THAT(agreed_error_of(
                        [&](Communicator& world) {
                            (void)select_samples(world, graph, utilities, options_);
                        },
                        ExitCode::usage),
                    AllOf(HasSubstr("--output " + options_.output),
                          HasSubstr(name == "letter" ? "is not a subset" : "is also an input")));
        EXPECT_EQ(read_file(folder_ / name), before);
    }
}

TEST_F(SelectSamples, GoOnFromTheStateOfACallThatEnded) {
    const SampleGraph graph(problem_.size(), edges_);
    const SampleUtilities utilities(worth_);
    const std::string round = "rows of parts";
    Phases all;
    options_.progress = all.taker();
    const Chosen whole = choose(graph, utilities, options_);
    EXPECT_EQ(all.begun(round), 3);
    options_.state = folder_ / "state";
    Phases before;
    options_.progress = [&, take = before.taker()](const char* phase, int64_t done, int64_t total) {
        take(phase, done, total);
        if (before.begun(round) == 2) throw std::runtime_error("enough");
    };
    EXPECT_ANY_THROW((void)choose(graph, utilities, options_));
    EXPECT_TRUE(std::filesystem::exists(folder_ / "state/state.safetensors"));

    Phases after;
    options_.progress = after.taker();
    const Chosen resumed = choose(graph, utilities, options_);
    EXPECT_EQ(after.begun(round), 2);
    EXPECT_EQ(resumed.samples, whole.samples);
    EXPECT_EQ(resumed.subset.objective, whole.subset.objective);
    EXPECT_EQ(folder_.names(), std::set<std::string>{});
}

/// A graph so large that its state goes to files where memory is short.
class SelectSamplesInFiles : public SelectSamples {
protected:
    SelectSamplesInFiles() {
        const std::vector<double> utilities(static_cast<size_t>(graph_.samples()), 0.5);
        utilities_.emplace(utilities);
        options_ = {.size = 1000, .certificate_steps = 0};
        whole_ = choose(graph_, *utilities_, options_).samples;
        World::threads(1).run([&](Communicator& world) {
            options_.memory = SelectionRun(world, graph_, *utilities_, options_).plan().total() - 1;
        });
    }
    [[nodiscard]] std::string error() {
        return agreed_error_of(
            [&](Communicator& world) {
                (void)select_samples(world, graph_, *utilities_, options_);
            },
            ExitCode::failed, 1);
    }
    const SampleGraph graph_{400'000, std::vector<WeightedEdge>{{0, 1, 0.5}, {1, 2, 0.5}}};
    std::optional<SampleUtilities> utilities_;
    std::vector<int64_t> whole_;
};

TEST_F(SelectSamplesInFiles, ScratchIsWhereTheyAre) {
    options_.scratch = folder_ / "missing";
    EXPECT_THAT(error(), HasSubstr(options_.scratch));
    options_.scratch = folder_ / "";
    const Variable nowhere("TMPDIR", folder_ / "missing");
    EXPECT_EQ(choose(graph_, *utilities_, options_).samples, whole_);
    EXPECT_EQ(folder_.names(), std::set<std::string>{});
}

TEST_F(SelectSamplesInFiles, AMissingFolderForTemporaryFilesIsNamedOnlyWhereOneIsNeeded) {
    const Variable nowhere("TMPDIR", folder_ / "missing");
    EXPECT_THAT(error(), AllOf(HasSubstr(folder_ / "missing"), HasSubstr("TMPDIR")));
    options_.memory = 0;
    EXPECT_EQ(choose(graph_, *utilities_, options_, 2).samples, whole_);
    EXPECT_THAT(
        error_of([&] { const SampleGraph graph(problem_.size(), edges_); }, ExitCode::failed),
        AllOf(HasSubstr(folder_ / "missing"), HasSubstr("TMPDIR")));
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
    EXPECT_THAT(
        error_of([&] { const SampleGraph none(3, {}, folder_ / "missing"); }, ExitCode::failed),
        HasSubstr(folder_ / "missing"));
}

// A process that is killed while it imports edges leaves a file, which the next one removes.
TEST_F(SelectSamples, TheFileOfAKilledProcessIsRemoved) {
    const std::string folder = folder_ / "graphs";
    std::filesystem::create_directory(folder);
    const auto import_beyond_the_limit = [&] {
        std::vector<WeightedEdge> edges;
        for (int64_t v = 0; v + 1 < 100'000; ++v) edges.push_back({v, v + 1, 0.5});
        // A larger file is a SIGXFSZ.
        const rlimit limit{.rlim_cur = 100'000, .rlim_max = 100'000};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        const rlimit no_core{};
        ::setrlimit(RLIMIT_CORE, &no_core);
        const SampleGraph graph(100'000, edges, folder);
    };
    EXPECT_EXIT(import_beyond_the_limit(), ::testing::KilledBySignal(SIGXFSZ), "");
    EXPECT_FALSE(std::filesystem::is_empty(folder));
    const SampleGraph graph(problem_.size(), edges_, folder);
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
        return agreed_error_of(
            [&](Communicator& world) { (void)select_samples(world, graph, utilities, options); },
            code);
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
    const auto refused_utilities = [&](const SampleUtilities& others) {
        return agreed_error_of(
            [&](Communicator& world) { (void)select_samples(world, graph, others, options_); },
            ExitCode::input_file);
    };
    EXPECT_THAT(refused_utilities(SampleUtilities(std::span(worth_).first(299))),
                AllOf(HasSubstr("edges and utilities: made from 300 and 299 samples"),
                      Not(HasSubstr("--seq-length"))));
    EXPECT_THAT(refused_utilities(SampleUtilities(folder_ / "missing.npy")),
                HasSubstr("missing.npy"));
    EXPECT_THAT(refused_utilities(SampleUtilities(std::string())), HasSubstr(": cannot open"));
}

}  // namespace
}  // namespace vocabpipe::testing
