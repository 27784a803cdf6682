// SPDX-License-Identifier: Apache-2.0
// The state of samples in files, a block of it in memory: the same choices, nothing left behind,
// and a line if a disk gives other bytes than were written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "src/select/disk/blocked_array.hpp"
#include "src/select/disk/message_runs.hpp"
#include "tests/select/run_selection.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

/// Changes a bit of every file without a name that this process has open in `folder`.
int damage_files_in(const std::string& folder) {
    int damaged = 0;
    const std::string resolved = std::filesystem::canonical(folder).string();
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        const std::string name = std::filesystem::read_symlink(entry.path(), gone).string();
        if (!name.starts_with(resolved) || !name.ends_with(" (deleted)")) continue;
        const int file = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
        char byte = 0;
        if (file >= 0 && ::pread(file, &byte, 1, 0) == 1) {
            byte = static_cast<char>(byte ^ 1);
            if (::pwrite(file, &byte, 1, 0) == 1) ++damaged;
        }
        if (file >= 0) ::close(file);
        if (damaged > 0) break;  // several descriptors are the same file
    }
    return damaged;
}

std::string message_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const InputFileError& error) {
        return error.what();
    }
    return {};
}

TEST(BlockedArray, HoldsWhatWasWrittenInAnyOrder) {
    const TempFolder folder;
    for (const int64_t length : {1, 7, 64, 100, 1000}) {
        BlockedArray<int64_t> array(100, length, folder / "");
        std::vector<int64_t> expected(100);
        for (int64_t i = 0; i < 1000; ++i) {
            const int64_t at = i * 37 % 100;
            EXPECT_EQ(array[at], expected[static_cast<size_t>(at)]) << "0 at first";
            if (i % 3 == 0) array.edit(at) = expected[static_cast<size_t>(at)] = i;
        }
        for (int64_t at = 99; at >= 0; --at)
            EXPECT_EQ(array[at], expected[static_cast<size_t>(at)]);
        EXPECT_EQ(folder.names(), std::set<std::string>{}) << "files without names";
    }
}

TEST(BlockedArray, OfADamagedFileIsRefused) {
    const TempFolder folder;
    BlockedArray<int64_t> array(100, 50, folder / "");
    array.edit(0) = 5;
    EXPECT_EQ(array[60], 0);  // writes the first block
    ASSERT_GT(damage_files_in(folder / ""), 0);
    EXPECT_THAT(message_of([&] { (void)array[0]; }),
                HasSubstr("gives other bytes than were written; run the command again"));
}

TEST(MessageRuns, GiveTheMessagesOfEachBlockInTheirOrder) {
    const TempFolder folder;
    const StateBlocks blocks{.samples = 1, .folder = folder / "", .chunk_bytes = 50};
    MessageRuns runs(blocks, 5);
    std::vector<std::vector<uint64_t>> expected(5);
    for (uint64_t i = 0; i < 300; ++i) {
        const auto block = static_cast<int64_t>(i * i % 4);  // block 4 and others get none
        runs.add(block, i);
        expected[static_cast<size_t>(block)].push_back(i);
    }
    const auto read = [&](int64_t block) {
        std::vector<uint64_t> found;
        runs.read<uint64_t>(block, [&](std::span<const uint64_t> some) {
            ASSERT_LE(some.size_bytes(), blocks.chunk_bytes);
            found.insert(found.end(), some.begin(), some.end());
        });
        return found;
    };
    for (int64_t block = 0; block < 5; ++block) {
        const std::vector<uint64_t>& messages = expected[static_cast<size_t>(block)];
        EXPECT_EQ(read(block), messages);
        for (size_t number = messages.size(); number-- > 0;) {
            EXPECT_EQ(runs.at<uint64_t>(block, number), messages[number]) << number;
        }
    }
    EXPECT_EQ(folder.names(), std::set<std::string>{});
    ASSERT_GT(damage_files_in(folder / ""), 0);
    EXPECT_THAT(message_of([&] {
                    for (int64_t block = 0; block < 5; ++block) (void)read(block);
                }),
                HasSubstr("gives other bytes than were written"));
}

/// A rule, and the weights of utilities and similarities.
using RuleAndWeights = std::tuple<const char*, PairwiseObjective>;

class StateInFiles : public ::testing::TestWithParam<RuleAndWeights> {};

TEST_P(StateInFiles, ChoosesTheSameBytesAsInMemory) {
    const TempFolder folder;
    const auto& [rule, objective] = GetParam();
    // Few different values: many ties. Some samples have no neighbours.
    SelectProblem problem = random_problem(31, 400, 4, 40, 30);
    std::erase_if(problem.edges, [](const auto& edge) { return edge[0] % 10 == 0; });
    problem.objective = objective;
    World::threads(1).run(
        [&](Communicator& world) { write_graph(world, folder / "graph", problem); });
    const SelectionOptions options{.k = 130,
                                   .bounding = BoundingRule::from(rule, "--bounding"),
                                   .rounds = {.parts = 5, .rounds = 3, .adaptive = true}};
    const SelectionResult whole =
        run_selection(folder / "", problem, options, folder / "whole", {.ranks = 1});
    for (const int ranks : {1, 2, 3}) {
        for (const int64_t block : {3, 50, 150, 399}) {
            const SelectionResult result = run_selection(
                folder / "", problem, options, folder / "subset", {.ranks = ranks, .block = block});
            EXPECT_EQ(read_file(folder / "subset"), read_file(folder / "whole"))
                << ranks << ' ' << block;
            EXPECT_EQ(result.objective, whole.objective);
            EXPECT_EQ(result.bound, whole.bound);
        }
    }
    EXPECT_EQ(folder.names(), (std::set<std::string>{"graph", "subset", "whole"}));
}

INSTANTIATE_TEST_SUITE_P(
    Select, StateInFiles,
    ::testing::Combine(::testing::Values("off", "exact", "bernoulli:0.4", "quota:0.4",
                                         "weighted:0.4"),
                       ::testing::Values(PairwiseObjective{.alpha = 9, .beta = 1},
                                         PairwiseObjective{.alpha = 40, .beta = 1},
                                         PairwiseObjective{.alpha = 1, .beta = 1})));

}  // namespace
}  // namespace vocabpipe::testing
