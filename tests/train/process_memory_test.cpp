// SPDX-License-Identifier: Apache-2.0
#include "src/train/measure/process_memory.hpp"

#include <gtest/gtest.h>

#include "tests/train/data/temp_folder.hpp"

namespace vocabpipe::testing {
namespace {

TEST(ProcessMemory, OfACgroupCountsPagesOfFilesAsAvailable) {
    const TempFolder folder;
    const auto left = [&](const char* limit, const char* used, const char* stat) {
        write_file(folder / "memory.max", limit);
        write_file(folder / "memory.current", used);
        write_file(folder / "memory.stat", stat);
        return left_in_cgroup(folder / ".");
    };
    constexpr const char* kStat =
        "anon 100\nfile 700\nshmem 50\ninactive_anon 1\nactive_anon 2\n"
        "inactive_file 600\nactive_file 40\nunevictable 0\n";
    EXPECT_EQ(left("1000\n", "800\n", kStat), 1000 - (800 - 640));
    EXPECT_EQ(left("1000\n", "800\n", ""), 200);
    EXPECT_EQ(left("1000\n", "500\n", kStat), 1000) << "read a little later";
    EXPECT_EQ(left("100\n", "800\n", kStat), 0) << "a limit that was lowered";
    EXPECT_EQ(left("max\n", "800\n", kStat), -1);
    EXPECT_EQ(left_in_cgroup(folder / "none"), -1);
    EXPECT_GT(available_memory(), 0);
}

}  // namespace
}  // namespace vocabpipe::testing
