// SPDX-License-Identifier: Apache-2.0
// vocabpipe select run and stats, as programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>
#include <vector>

#include "src/select/files/subset_file.hpp"
#include "tests/select/select_problem.hpp"
#include "tests/tool/run_program.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A folder with the files of a problem, in which commands run.
class SelectCommand : public ::testing::Test {
protected:
    void write(const SelectProblem& problem, const std::string& graph = "graph",
               const std::string& utility = "scores") const {
        World::threads(1).run([&](Communicator& world) {
            write_graph(world, folder_ / graph, problem);
            write_utility(world, folder_ / utility, problem);
        });
    }
    [[nodiscard]] Outcome run(const std::string& flags, const std::string& before = {}) const {
        return run_shell("cd '" + (folder_ / "") + "' && " + before + " '" VOCABPIPE_PROGRAM "' " +
                         flags);
    }
    /// The one line of a command that is refused; it leaves nothing behind.
    [[nodiscard]] std::string refused(const std::string& flags, int exit_code) const {
        const auto before = folder_.names();
        const Outcome outcome = run(flags);
        EXPECT_EQ(outcome.exit_code, exit_code) << flags << ": " << outcome.error;
        EXPECT_EQ(outcome.output, "") << flags;
        EXPECT_EQ(std::ranges::count(outcome.error, '\n'), 1) << outcome.error;
        EXPECT_EQ(folder_.names(), before) << flags;
        return outcome.error;
    }

    TempFolder folder_;
};

const std::string kRun = "select run --graph graph --utility scores ";

TEST_F(SelectCommand, WritesTheSameSubsetForAnyRanksAndSaysHowItWasChosen) {
    write(random_problem(1, 800, 4, 1 << 20, 1 << 20));
    const std::string flags = kRun +
                              "--fraction 0.3 --bounding quota:0.3 --partitions 5 --rounds 3 "
                              "--adaptive --seed 4 --output ";
    for (const int ranks : {1, 2, 3}) {
        const std::string name = "subset" + std::to_string(ranks);
        const Outcome outcome = run(flags + name + " --report " + name + ".json" +
                                    " --transport threads --ranks " + std::to_string(ranks));
        ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
        EXPECT_EQ(read_file(folder_ / name), read_file(folder_ / "subset1"));
        EXPECT_FALSE(std::filesystem::exists(folder_ / (name + ".state")));
        std::istringstream lines(outcome.output);
        for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
        EXPECT_THAT(outcome.output, HasSubstr(name + ": 240 samples"));

        const auto report = nlohmann::json::parse(read_file(folder_ / (name + ".json")));
        EXPECT_EQ(report["chosen"], 240);
        EXPECT_EQ(report["samples"], 800);
        EXPECT_EQ(report["flags"]["--bounding"], "quota:0.3");
        EXPECT_EQ(report["rounds"].size(), 3U);
        EXPECT_EQ(report["ranks"], ranks);
        EXPECT_LE(report["memory"]["peak_bytes"], report["memory"]["planned_bytes"]);
        EXPECT_LE(report["bounding"]["traffic"]["messages"], 2 * report["edges"].get<int64_t>());
        EXPECT_GT(report["bounding"]["rejoin_tuples"],
                  report["bounding"]["traffic"]["messages"].get<int64_t>());
        EXPECT_EQ(report["traffic"]["sent_bytes"] == 0, ranks == 1);
        EXPECT_TRUE(report["seconds"].contains("bounding"));
    }
    const SubsetReader subset(folder_ / "subset1");
    EXPECT_EQ(subset.info().provenance.at("select.partitions"), "5");
    EXPECT_EQ(subset.info().provenance.at("select.adaptive"), "given");
    EXPECT_EQ(subset.info().corpus.samples, 800);
    // Its own outputs are replaced, and only those.
    EXPECT_EQ(run(flags + "subset1 --report subset1.json").exit_code, 0);
    EXPECT_THAT(refused(flags + "scores", 2), HasSubstr("is also an input"));
    EXPECT_THAT(refused(flags + "subset1.json", 2), HasSubstr("already exists and is not"));
    EXPECT_THAT(refused(flags + "new --report subset1", 2), HasSubstr("--report subset1"));
}

TEST_F(SelectCommand, RefusesBadFlags) {
    write(random_problem(2, 50, 2, 9, 9));
    const std::string rest = kRun + "--output subset ";
    EXPECT_THAT(refused(rest, 2), HasSubstr("--fraction or --subset-size: give one"));
    EXPECT_THAT(refused(rest + "--fraction 1.5", 2), HasSubstr("--fraction 1.5: must be from 0"));
    EXPECT_THAT(refused(rest + "--fraction -0.1", 2), HasSubstr("--fraction -0.1"));
    EXPECT_THAT(refused(rest + "--fraction 0.1 --subset-size 3", 2), HasSubstr("--subset-size"));
    EXPECT_THAT(refused(rest + "--subset-size -1", 2), HasSubstr("--subset-size"));
    EXPECT_THAT(refused(rest + "--subset-size 51", 2),
                HasSubstr("--subset-size 51: there are only 50 samples"));
    EXPECT_THAT(refused(rest + "--fraction 0.5 --bounding some", 2),
                HasSubstr("--bounding some: is none of off, exact, bernoulli:Q, quota:Q "
                          "and weighted:Q"));
    EXPECT_THAT(refused(rest + "--fraction 0.5 --bounding quota:1.2", 2), HasSubstr("quota:1.2"));
    EXPECT_THAT(refused(rest + "--fraction 0.5 --alpha -1", 2), HasSubstr("--alpha"));
    EXPECT_THAT(refused(rest + "--fraction 0.5 --rounds 0", 2), HasSubstr("--rounds"));
    EXPECT_THAT(refused(rest + "--fraction 0.5 --partitions 51", 2),
                HasSubstr("--partitions 51: there are only 50 samples"));
    EXPECT_THAT(refused(rest + "--fraction 0.5 --memory 1000", 4),
                AllOf(HasSubstr("--memory 1000: 50 samples"), HasSubstr("use --memory ")));
    EXPECT_THAT(refused("select run --utility scores --fraction 0.5 --output subset", 2),
                HasSubstr("--graph is required"));
    EXPECT_THAT(refused("select run --graph graph --fraction 0.5 --output subset", 2),
                HasSubstr("--utility is required"));
    EXPECT_THAT(refused(kRun + "--fraction 0.5", 2), HasSubstr("--output: is required"));
    EXPECT_THAT(refused(kRun + "--fraction 0.5 --output no/such/folder/subset", 1),
                HasSubstr("no/such/folder/subset: cannot create"));
}

TEST_F(SelectCommand, RefusesBadFiles) {
    const SelectProblem right = random_problem(3, 50, 2, 9, 9);
    write(right);
    const auto with = [&](const char* graph, const char* utility) {
        return std::string("select run --graph ") + graph + " --utility " + utility +
               " --fraction 0.5 --output subset --transport threads --ranks 2";
    };
    SelectProblem other = random_problem(3, 51, 2, 9, 9);
    write(other, "graph51", "scores51");
    EXPECT_THAT(refused(with("graph51", "scores"), 3), HasSubstr("made from 51 and 50 samples"));
    other = right;
    other.utility[31] = -4;
    write(other, "same", "negative");
    EXPECT_THAT(refused(with("graph", "negative"), 3), HasSubstr("-4"));
    EXPECT_THAT(refused(with("scores", "scores"), 3), HasSubstr("expected \"vocabpipe graph 1\""));
    EXPECT_THAT(refused(with("graph", "graph"), 3), HasSubstr("expected \"vocabpipe scores 1\""));
    EXPECT_THAT(refused(with("missing", "scores"), 3), HasSubstr("missing: cannot open"));
    const std::string bytes = read_file(folder_ / "graph");
    write_file(folder_ / "cut", bytes.substr(0, bytes.size() - 4));
    EXPECT_THAT(refused(with("cut", "scores"), 3), HasSubstr("cut: "));
    // The last similarity: an edge that no longer stands in both rows.
    std::string asymmetric = bytes;
    asymmetric[bytes.size() - 4] ^= 1;
    write_file(folder_ / "asymmetric", asymmetric);
    EXPECT_THAT(refused(with("asymmetric", "scores"), 3),
                HasSubstr("every edge must stand in both rows with the same similarity"));
}

TEST_F(SelectCommand, ADryRunPrintsThePlanAndWritesNothing) {
    write(random_problem(4, 100, 2, 9, 9));
    const auto before = folder_.names();
    const Outcome outcome =
        run(kRun + "--fraction 0.5 --dry-run --partitions 4 --rounds 3 --bounding quota:0.5");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("memory per rank"), HasSubstr("state of samples"),
                                      HasSubstr("partitions"), HasSubstr("rounds")));
    EXPECT_EQ(folder_.names(), before);
    const Outcome small = run(kRun + "--fraction 0.5 --dry-run --memory 1kB");
    EXPECT_EQ(small.exit_code, 4);
    EXPECT_THAT(small.output, HasSubstr("memory per rank"));
    EXPECT_THAT(small.error, HasSubstr("--memory 1000"));
}

TEST_F(SelectCommand, TooLittleMemoryIsSaidBeforeTheRowsAreRead) {
    write(random_problem(4, 100, 2, 9, 9));
    // A row that ends before it begins, which a reader of all rows finds.
    std::string bytes = read_file(folder_ / "graph");
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    bytes[sizeof header + header + 8 * 50 + 7] = '\x7f';
    write_file(folder_ / "graph", bytes);
    EXPECT_THAT(refused(kRun + "--fraction 0.5 --output subset", 3), HasSubstr("graph"));
    EXPECT_THAT(refused(kRun + "--fraction 0.5 --output subset --memory 100", 4),
                HasSubstr("--memory 100: 100 samples"));
}

TEST_F(SelectCommand, RunsOnSmallStacks) {
    write(random_problem(4, 100, 2, 9, 9));
    const std::string flags = kRun + "--fraction 0.5 --transport threads --ranks 2 --output ";
    const Outcome small = run(flags + "small", "ulimit -s 128 &&");
    EXPECT_EQ(small.exit_code, 0) << small.error;
    EXPECT_EQ(run(flags + "usual").exit_code, 0);
    EXPECT_EQ(read_file(folder_ / "small"), read_file(folder_ / "usual"));
}

TEST_F(SelectCommand, StatsShowHistogramsAndWhatBoundingWouldDecide) {
    write(random_problem(5, 500, 3, 1 << 20, 1 << 18));
    const Outcome outcome = run("select stats --graph graph --utility scores --fraction 0.2");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(outcome.output,
                AllOf(HasSubstr("500 samples, "), HasSubstr("neighbors of a sample, mean "),
                      HasSubstr("utility (margin), mean 0.5"), HasSubstr("similarity of"),
                      HasSubstr("exact bounding selects ")));
    std::istringstream lines(outcome.output);
    for (std::string line; std::getline(lines, line);) {
        EXPECT_LE(line.size(), 80U) << line;
        EXPECT_FALSE(line.ends_with(' ')) << line;
    }
    // The same as a run decides.
    ASSERT_EQ(run(kRun + "--fraction 0.2 --output subset --report r").exit_code, 0);
    const auto report = nlohmann::json::parse(read_file(folder_ / "r"));
    EXPECT_THAT(unwrapped(outcome.output),
                HasSubstr("selects " + report["bounding"]["selected"].dump() + " and discards " +
                          report["bounding"]["discarded"].dump()));
}

TEST_F(SelectCommand, SaysHowGoodTheChoiceIsForCertain) {
    write(random_problem(5, 500, 6, 1 << 20, 1 << 20));
    const Outcome outcome = run(kRun + "--fraction 0.3 --output subset --report r");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(unwrapped(outcome.output), AllOf(HasSubstr("no choice of as many has more than"),
                                                 HasSubstr("this one has at least 9")));
    const auto report = nlohmann::json::parse(read_file(folder_ / "r"));
    const auto& certificate = report["certificate"];
    const auto objective = report["objective"].get<double>();
    EXPECT_GE(certificate["bound"], report["objective"]);
    const double share = 100 * objective / certificate["bound"].get<double>();
    EXPECT_LE(certificate["percent"].get<double>(), share);
    EXPECT_GT(certificate["percent"].get<double>(), share - 0.011);
    EXPECT_EQ(certificate["lowering_samples"], 0);
    EXPECT_EQ(run("select page --report r --html page").exit_code, 0);
    EXPECT_THAT(read_file(folder_ / "page"), HasSubstr("certain share of the best"));
    // Without steps there is none, and the choice is the same.
    const Outcome without =
        run(kRun + "--fraction 0.3 --certificate-steps 0 --output without --report r");
    EXPECT_THAT(without.output, Not(HasSubstr("certificate")));
    EXPECT_TRUE(nlohmann::json::parse(read_file(folder_ / "r"))["certificate"].is_null());
    EXPECT_EQ(read_file(folder_ / "without"), read_file(folder_ / "subset"));
    EXPECT_EQ(run("select page --report r --html page").exit_code, 0);
    EXPECT_THAT(unwrapped(run(kRun + "--fraction 0.3 --alpha 900 --output best").output),
                HasSubstr("no choice of as many has more: this is a best one"));
    EXPECT_THAT(refused(kRun + "--fraction 0.3 --output x --certificate-steps 256", 2),
                HasSubstr("--certificate-steps"));
}

TEST_F(SelectCommand, SaysWhatMakesAChoiceMeaningless) {
    write(random_problem(5, 500, 6, 1 << 20, 1 << 20));
    const auto note = [&](const std::string& flags) {
        const Outcome outcome = run(kRun + "--output subset --report r " + flags);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        const auto report = nlohmann::json::parse(read_file(folder_ / "r"));
        std::string lines;
        for (const auto& line : report["notes"]) {
            lines += "vocabpipe: note: " + line.get<std::string>() + "\n";
        }
        EXPECT_EQ(outcome.error, lines);
        EXPECT_TRUE(report["objective"] < 0 || lines.find("below 0") == std::string::npos);
        return lines;
    };
    EXPECT_EQ(note("--fraction 0.2 --alpha 40"), "");
    EXPECT_THAT(note("--fraction 0.9 --alpha 1 --beta 4"),
                AllOf(HasSubstr("--alpha 1, --beta 4: the objective is below 0"),
                      HasSubstr("use a larger --alpha or choose fewer samples")));
    EXPECT_THAT(note("--fraction 0.5 --alpha 3 --beta 1"),
                HasSubstr("of the 250 chosen samples lower the objective"));
    EXPECT_THAT(
        note("--fraction 0.2 --alpha 0"),
        AllOf(HasSubstr("--alpha 0: utilities do not count"), Not(HasSubstr("decided nothing"))));
    EXPECT_THAT(note("--fraction 0.2 --beta 0"), HasSubstr("--beta 0: similarities do not count"));
    const std::string nothing = note("--fraction 0.5 --alpha 1 --beta 1");
    EXPECT_THAT(nothing, HasSubstr("--bounding exact: decided nothing; with --beta 1, it begins to "
                                   "decide at --alpha "));
    const size_t at = nothing.find("at --alpha ") + 11;
    const int64_t alpha = std::stoll(nothing.substr(at));
    EXPECT_THAT(note("--fraction 0.5 --beta 1 --alpha " + std::to_string(alpha)),
                Not(HasSubstr("decided nothing")));
    EXPECT_THAT(note("--fraction 0.5 --beta 1 --alpha " + std::to_string(alpha - 1)),
                HasSubstr("decided nothing"));
    EXPECT_THAT(
        unwrapped(
            run("select stats --graph graph --utility scores --fraction 0.5 --alpha 1").output),
        HasSubstr("it begins to decide at --alpha " + std::to_string(alpha)));
}

TEST_F(SelectCommand, ASecondRunOfTheSameOutputIsRefused) {
    write(random_problem(6, 50, 2, 9, 9));
    std::filesystem::create_directory(folder_ / "subset.state");
    const int lock = ::open((folder_ / "subset.state/lock").c_str(), O_RDWR | O_CREAT, 0666);
    ASSERT_EQ(::flock(lock, LOCK_EX), 0);
    EXPECT_THAT(refused(kRun + "--fraction 0.5 --output subset", 2),
                HasSubstr("subset.state: another run works here"));
    ::close(lock);
    EXPECT_EQ(run(kRun + "--fraction 0.5 --output subset").exit_code, 0);
}

#ifdef VOCABPIPE_MPIRUN
TEST_F(SelectCommand, RanksWithDifferentFlagsEndWithTheFlagThatDiffers) {
    write(random_problem(14, 60, 2, 9, 9));
    const std::string all = kRun + "--output subset ";
    for (const auto& [flag, first, second] : {std::tuple{"--seed", "1", "2"},
                                              {"--fraction", "0.3", "0.4"},
                                              {"--alpha", "2", "3"},
                                              {"--beta", "2", "3"},
                                              {"--partitions", "1", "2"},
                                              {"--rounds", "1", "2"},
                                              {"--bounding", "off", "exact"},
                                              {"--memory", "1000000", "2000000"},
                                              {"--state", "a", "b"},
                                              {"--report", "a", "b"}}) {
        const auto rank = [&, name = std::string(flag)](const char* value) {
            return " '" VOCABPIPE_PROGRAM "' " + all +
                   (name == "--fraction" ? "" : "--fraction 0.5 ") + name + " " + value;
        };
        const Outcome outcome =
            run_shell("cd '" + (folder_ / "") +
                      "' && '" VOCABPIPE_MPIRUN "' --oversubscribe -np 2 '" VOCABPIPE_BY_RANK "'" +
                      rank(first) + " ::" + rank(second));
        EXPECT_EQ(outcome.exit_code, 2) << flag << outcome.error;
        EXPECT_THAT(outcome.error,
                    HasSubstr("vocabpipe: error: " + std::string(flag) + " " + first))
            << flag;
        EXPECT_THAT(outcome.error, HasSubstr("on rank 0 but " + std::string(flag) + " " + second));
    }
    EXPECT_FALSE(folder_.names().contains("subset"));
}
#endif

TEST_F(SelectCommand, WorksAndSaysSoWhereFilesCannotBeLocked) {
    write(random_problem(6, 50, 2, 9, 9));
    const auto on = [&](const std::string& file_system) {
        return run(kRun + "--fraction 0.5 --output subset",
                   "env LD_PRELOAD=" VOCABPIPE_NETWORK_FILE_SYSTEM " VOCABPIPE_FILE_SYSTEM=" +
                       file_system);
    };
    const Outcome unlocked = on("no-locks");
    EXPECT_EQ(unlocked.exit_code, 0) << unlocked.error;
    EXPECT_THAT(unlocked.error, HasSubstr("has no locks, so nothing keeps a second run out"));
    for (const char* lost : {"rename-answers-ENOENT", "rename-answers-EIO", "interrupted-fsync"}) {
        const Outcome outcome = on(lost);
        EXPECT_EQ(outcome.exit_code, 0) << lost << outcome.error;
        EXPECT_EQ(outcome.error, "");
    }
    for (const std::string& name : folder_.names()) {
        EXPECT_THAT(name, AllOf(Not(HasSubstr("partial")), Not(HasSubstr("state"))));
    }
}

/// Killed at any moment it goes on, with another number of ranks, to the same subset.
TEST_F(SelectCommand, KilledAtAnyMomentGoesOnToTheSameSubset) {
    write(random_problem(7, 6000, 6, 1 << 20, 1 << 20));
    const std::string flags =
        kRun + "--fraction 0.3 --bounding quota:0.3 --partitions 12 --rounds 6 --output ";
    ASSERT_EQ(run(flags + "whole").exit_code, 0);
    std::mt19937 random(1);
    for (int time = 0; time < 12; ++time) {
        const std::string ranks = std::to_string(1 + time % 3);
        const std::string milliseconds =
            "0." + std::string(time % 2 == 0 ? "0" : "") + std::to_string(10 + random() % 80);
        const Outcome outcome = run(flags + "subset --transport threads --ranks " + ranks,
                                    "timeout --foreground --signal=KILL " + milliseconds);
        if (outcome.exit_code == 0) break;
        EXPECT_FALSE(std::filesystem::exists(folder_ / "subset"));
    }
    const Outcome last = run(flags + "subset");
    ASSERT_EQ(last.exit_code, 0) << last.error;
    EXPECT_EQ(read_file(folder_ / "subset"), read_file(folder_ / "whole"));
    for (const std::string& name : folder_.names()) {
        EXPECT_THAT(name, AllOf(Not(HasSubstr("partial")), Not(HasSubstr("state"))));
    }
}

TEST_F(SelectCommand, AFullDiskIsOneLineAndLeavesNothing) {
    write(random_problem(8, 20'000, 2, 9, 9));
    std::filesystem::create_directory(folder_ / "disk");
    if (::mount("tmpfs", (folder_ / "disk").c_str(), "tmpfs", 0, "size=64k") != 0) {
        GTEST_SKIP() << "cannot mount a small file system";
    }
    const Outcome outcome = run(kRun + "--fraction 0.9 --output disk/subset --state state");
    std::error_code ignored;
    const bool left = std::filesystem::exists(folder_ / "disk/subset", ignored) ||
                      std::filesystem::exists(folder_ / "disk/subset.partial", ignored);
    ::umount((folder_ / "disk").c_str());
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.error, HasSubstr("No space left on device; free some space"));
    EXPECT_FALSE(left);
    // The work is not lost.
    EXPECT_EQ(run(kRun + "--fraction 0.9 --output disk/subset --state state").exit_code, 0);
}

/// Samples around a ring, made faster than a random problem.
SelectProblem ring_of(int64_t nodes) {
    SelectProblem ring;
    for (int64_t v = 0; v < nodes; ++v) {
        ring.utility.push_back(static_cast<int32_t>(v * 7919 % (1 << 20)));
        for (int64_t w = v + 1; w <= v + 4 && w < nodes; ++w) {
            ring.edges.push_back({v, w, (v * 31 + w) % (1 << 20)});
        }
    }
    return ring;
}

/// Address space that is enough for parts, but not for all samples at once.
TEST_F(SelectCommand, ChoosesInPartsWhereMemoryIsTooSmallForGreedyInOnePiece) {
    write(ring_of(600'000));
    const std::string flags = kRun + "--fraction 0.3 --rounds 2 --output subset --partitions ";
    // What the program itself takes, by a run of almost nothing.
    SelectProblem nothing = random_problem(9, 10, 1, 9, 9);
    write(nothing, "small_graph", "small_scores");
    int64_t base = 0;
    for (int64_t kib = 30'000; kib < 8'000'000 && base == 0; kib += 2'000) {
        const std::string small =
            "select run --graph small_graph --utility small_scores --fraction 0.5 --output small";
        if (run(small, "ulimit -v " + std::to_string(kib) + ";").exit_code == 0) base = kib;
    }
    ASSERT_GT(base, 0);
    // Beside the buffers 8 parts take about 15 MB, and one part 70 MB.
    const std::string limit = "ulimit -v " + std::to_string(base + 35'000) + ";";
    const Outcome one = run(flags + "1", limit);
    EXPECT_EQ(one.exit_code, 4) << one.error;
    EXPECT_THAT(one.error, HasSubstr("out of memory; use more --partitions"));
    std::filesystem::remove_all(folder_ / "subset.state");
    const Outcome parts = run(flags + "8", limit);
    EXPECT_EQ(parts.exit_code, 0) << parts.error;
    // The same limit as a flag is refused before the work.
    EXPECT_THAT(refused(flags + "1 --memory 35MB --output other", 4), HasSubstr("--partitions "));
    EXPECT_EQ(run(flags + "8 --memory 35MB --output other").exit_code, 0);
}

class SelectCommandInLittleMemory : public SelectCommand {
protected:
    void SetUp() override { write(ring_of(200'000)); }
    /// The state takes 3.4 MB while bounding, and the rest 5 MB.
    const std::string flags_ = kRun + "--fraction 0.3 --partitions 16 --rounds 2 --output ";
    const std::string little_ = " --memory 7MB --transport threads --ranks ";
};

TEST_F(SelectCommandInLittleMemory, ChoosesTheSameKilledAtAnyMoment) {
    ASSERT_EQ(run(flags_ + "whole --report whole.json").exit_code, 0);
    const auto memory_of = [&](const std::string& report) {
        return nlohmann::json::parse(read_file(folder_ / report))["memory"];
    };
    const int64_t parts_that_wait = memory_of("whole.json")["planned_file_bytes"];
    EXPECT_GT(memory_of("whole.json")["planned_bytes"], 7'000'000);
    const Outcome outcome = run(flags_ + "files --report files.json" + little_ + "1");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_EQ(read_file(folder_ / "files"), read_file(folder_ / "whole"));
    EXPECT_GT(memory_of("files.json")["planned_file_bytes"], parts_that_wait + 200'000 * 17);
    EXPECT_LE(memory_of("files.json")["planned_bytes"], 7'000'000);
    EXPECT_LE(memory_of("files.json")["peak_bytes"], memory_of("files.json")["planned_bytes"]);
    for (const char* seconds : {"0.2", "0.5", "0.9"}) {
        (void)run(flags_ + "killed" + little_ + "1",
                  std::string("timeout --foreground --signal=KILL ") + seconds);
    }
    const Outcome last = run(flags_ + "killed" + little_ + "1");
    ASSERT_EQ(last.exit_code, 0) << last.error;
    EXPECT_EQ(read_file(folder_ / "killed"), read_file(folder_ / "whole"));
    for (const std::string& name : folder_.names()) EXPECT_THAT(name, Not(HasSubstr("state")));
}

TEST_F(SelectCommandInLittleMemory, SaysWhereItsFilesCannotLie) {
    EXPECT_THAT(refused(flags_ + "subset --scratch no/folder" + little_ + "1", 1),
                HasSubstr("no/folder: is no folder"));
    std::filesystem::create_directory(folder_ / "disk");
    if (::mount("tmpfs", (folder_ / "disk").c_str(), "tmpfs", 0, "size=1m") != 0) {
        GTEST_SKIP() << "cannot mount a small file system";
    }
    const Outcome outcome = run(flags_ + "subset --scratch disk" + little_ + "1");
    const bool empty = std::filesystem::is_empty(folder_ / "disk");
    ::umount((folder_ / "disk").c_str());
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.error, HasSubstr("No space left on device"));
    EXPECT_EQ(std::ranges::count(outcome.error, '\n'), 1) << outcome.error;
    EXPECT_TRUE(empty);
}

#ifdef VOCABPIPE_MPIRUN
TEST_F(SelectCommand, UnderMpirunWritesTheSameBytesAsThreads) {
    write(random_problem(10, 1000, 4, 1 << 20, 1 << 20));
    for (const char* rule : {"exact", "quota:0.3", "bernoulli:0.5", "weighted:0.3"}) {
        const std::string flags =
            kRun + "--fraction 0.4 --partitions 5 --rounds 2 --bounding " + rule + " --output ";
        ASSERT_EQ(run(flags + "threads").exit_code, 0);
        for (const char* ranks : {"2", "4"}) {
            const Outcome outcome =
                run(flags + "mpi" + ranks,
                    VOCABPIPE_MPIRUN " --oversubscribe -np " + std::string(ranks));
            ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
            EXPECT_EQ(run_shell("cmp '" + (folder_ / "threads") + "' '" +
                                (folder_ / ("mpi" + std::string(ranks))) + "'")
                          .exit_code,
                      0);
        }
    }
    write(random_problem(10, 1001, 4, 9, 9), "graph1001", "scores1001");
    const Outcome bad =
        run("select run --graph graph1001 --utility scores --fraction 0.5 "
            "--output bad",
            VOCABPIPE_MPIRUN " --oversubscribe -np 2");
    EXPECT_EQ(bad.exit_code, 3) << bad.error;
    EXPECT_THAT(bad.error, HasSubstr("vocabpipe: error: "));
}

/// Three hosts, each a folder in which its ranks run: none sees the files of the others.
class SelectOnHosts : public SelectCommand {
protected:
    void SetUp() override {
        write(random_problem(11, 1000, 4, 1 << 20, 1 << 20));
        ASSERT_EQ(run("select split --graph graph --parts 3 --output part.safetensors").exit_code,
                  0);
        for (int host = 0; host < 3; ++host) {
            const std::filesystem::path there = folder_ / host_name(host);
            std::filesystem::create_directory(there);
            std::filesystem::rename(
                folder_ / ("part-0000" + std::to_string(host + 1) + "-of-00003.safetensors"),
                there / "graph");
            std::filesystem::copy(folder_ / "scores", there / "scores");
        }
    }
    static std::string host_name(int host) { return "host" + std::to_string(host); }
    /// Runs it on these hosts, one rank on each in turn.
    [[nodiscard]] Outcome run_on(const std::vector<int>& hosts, const std::string& flags,
                                 const std::string& before = {}) const {
        std::string command = before + " '" VOCABPIPE_MPIRUN "' --oversubscribe -np " +
                              std::to_string(hosts.size()) + " '" VOCABPIPE_BY_RANK "'";
        for (const int host : hosts) {
            command += (command.ends_with(VOCABPIPE_BY_RANK "'") ? "" : " ::") +
                       std::string(" env -C '") + (folder_ / host_name(host)) +
                       "' '" VOCABPIPE_PROGRAM "' " + flags;
        }
        return run_shell(command);
    }
    [[nodiscard]] std::set<std::string> names_on(int host) const {
        std::set<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(folder_ / host_name(host))) {
            names.insert(entry.path().filename().string());
        }
        return names;
    }
};

TEST_F(SelectOnHosts, ThatShareNoFilesWriteTheSameBytesOnTheFirst) {
    for (const char* rule : {"exact", "quota:0.3"}) {
        const std::string flags =
            kRun + "--fraction 0.4 --partitions 7 --rounds 2 --bounding " + rule + " --output ";
        ASSERT_EQ(run(flags + "whole").exit_code, 0);
        for (const auto& hosts : {std::vector{0, 1, 2}, std::vector{0, 0, 1, 2, 2}}) {
            for (const char* more : {"", " --memory 4MB --scratch ."}) {
                const Outcome outcome = run_on(hosts, flags + "subset" + more);
                ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
                EXPECT_EQ(read_file(folder_ / "host0/subset"), read_file(folder_ / "whole"));
                EXPECT_EQ(names_on(0), (std::set<std::string>{"graph", "scores", "subset"}));
                EXPECT_EQ(names_on(1), (std::set<std::string>{"graph", "scores"}));
                EXPECT_EQ(names_on(2), (std::set<std::string>{"graph", "scores"}));
            }
        }
    }
}

TEST_F(SelectOnHosts, GoOnWithOtherRanks) {
    // The report's path is also by what ranks are found that outlive mpirun.
    const std::string flags = kRun + "--fraction 0.4 --partitions 7 --rounds 400 --report '" +
                              (folder_ / "report.json") + "' --output ";
    ASSERT_EQ(run(flags + "whole").exit_code, 0);
    bool saved = false;
    for (const char* seconds : {"0.7", "1", "1.5", "2", "4", "8"}) {
        (void)run_on({0, 1, 2}, flags + "subset",
                     "timeout --foreground --signal=KILL " + std::string(seconds));
        run_shell("pkill -KILL -f '[r]eport " + (folder_ / "report.json") + "'");
        saved = std::filesystem::exists(folder_ / "host0/subset.state/state.safetensors");
        if (saved) break;
    }
    EXPECT_TRUE(saved) << "no run was killed between its first state and its end";
    const Outcome outcome = run_on({0, 1, 1, 2, 2}, flags + "subset");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_EQ(read_file(folder_ / "host0/subset"), read_file(folder_ / "whole"));
    for (int host = 0; host < 3; ++host) {
        for (const std::string& name : names_on(host)) EXPECT_THAT(name, Not(HasSubstr("state")));
    }
}

TEST_F(SelectOnHosts, AreToldWhichPartsAreMissing) {
    const std::string flags = kRun + "--fraction 0.4 --output subset";
    const auto line_on = [&](const std::vector<int>& hosts) {
        const Outcome outcome = run_on(hosts, flags);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.error;
        EXPECT_FALSE(names_on(0).contains("subset"));
        return outcome.error;
    };
    EXPECT_THAT(line_on({0, 2}),
                HasSubstr("--graph graph: rank 1 sees rows 667 to 999, where row 334 must follow"));
    EXPECT_THAT(line_on({0, 1}), HasSubstr("part ends at row 666 of 1000; start ranks on the hosts "
                                           "of all parts"));
    EXPECT_THAT(line_on({0, 1, 2, 0}), HasSubstr("rank 3 sees rows 0 to 333"));
    std::filesystem::copy(folder_ / "host1/graph", folder_ / "part");
    EXPECT_THAT(refused("select stats --graph part --utility scores", 3),
                HasSubstr("part: is a part of a graph, with rows 334 to 666 of 1000; give the file "
                          "that was split"));
    EXPECT_THAT(refused("select split --graph part --parts 2 --output again", 3),
                HasSubstr("is a part of a graph"));
    EXPECT_THAT(refused("select split --graph graph --parts 1001 --output again", 2),
                HasSubstr("--parts 1001: there are only 1000 samples"));
}

TEST_F(SelectOnHosts, NoticeOtherUtilities) {
    write(random_problem(12, 1000, 4, 1 << 20, 1 << 20), "other", "other_scores");
    std::filesystem::copy(folder_ / "other_scores", folder_ / "host2/scores",
                          std::filesystem::copy_options::overwrite_existing);
    const Outcome outcome = run_on({0, 1, 2}, kRun + "--fraction 0.4 --output subset");
    EXPECT_EQ(outcome.exit_code, 2) << outcome.error;
    EXPECT_THAT(outcome.error,
                HasSubstr("--utility scores: rank 2 sees other utilities than rank 0"));
}

TEST_F(SelectOnHosts, WriteNothingIntoFilesOfOtherRunsOnOtherHosts) {
    // Names that a run with this process number would choose, left behind by another one.
    ASSERT_EQ(run(kRun + "--fraction 0.4 --output whole").exit_code, 0);
    const std::string partial = "host1/subset.partial-";
    for (int pid = ::getpid(); pid < ::getpid() + 5000; ++pid) {
        write_file(folder_ / (partial + std::to_string(pid) + "-0"), "left behind");
    }
    const Outcome outcome = run_on({0, 1, 2}, kRun + "--fraction 0.4 --output subset");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_EQ(read_file(folder_ / "host0/subset"), read_file(folder_ / "whole"));
    for (int pid = ::getpid(); pid < ::getpid() + 5000; ++pid) {
        ASSERT_EQ(read_file(folder_ / (partial + std::to_string(pid) + "-0")), "left behind");
    }
}

TEST_F(SelectCommand, LeavesALinkToItsStateWhereItIs) {
    write(random_problem(13, 600, 4, 1 << 20, 1 << 20));
    std::filesystem::create_directory(folder_ / "fast");
    std::filesystem::create_directory_symlink("fast", folder_ / "subset.state");
    (void)run(kRun +
                  "--fraction 0.4 --partitions 3 --rounds 2000 --output subset --transport threads "
                  "--ranks 2",
              "timeout --foreground --signal=TERM 1");
    EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "subset.state"));
}

TEST_F(SelectOnHosts, NoticeAPartOfAnotherGraph) {
    write(random_problem(12, 1000, 4, 1 << 20, 1 << 20), "other");
    ASSERT_EQ(run("select split --graph other --parts 3 --output other.safetensors").exit_code, 0);
    std::filesystem::copy(folder_ / "other-00002-of-00003.safetensors", folder_ / "host1/graph",
                          std::filesystem::copy_options::overwrite_existing);
    const Outcome outcome = run_on({0, 1, 2}, kRun + "--fraction 0.4 --output subset");
    EXPECT_EQ(outcome.exit_code, 3) << outcome.error;
    EXPECT_THAT(outcome.error, HasSubstr("stand in both rows"));
    EXPECT_EQ(names_on(0), (std::set<std::string>{"graph", "scores"}));
}
#endif

}  // namespace
}  // namespace vocabpipe::testing
