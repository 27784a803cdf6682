// SPDX-License-Identifier: Apache-2.0
#include "src/support/control_groups.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "src/support/process_memory.hpp"
#include "tests/train/data/temp_folder.hpp"

namespace vocabpipe::testing {
namespace {

/// A /proc/PID and hierarchies below a folder.
class ControlGroup : public ::testing::Test {
protected:
    /// The folder of a group, made.
    std::string group(const std::string& path) {
        std::filesystem::create_directories(folder_ / path);
        return folder_ / path;
    }
    void mounted(const std::string& root, const std::string& point, const std::string& type,
                 const std::string& options) {
        mounts_ += "31 23 0:28 " + root + " " + (folder_ / point) + " rw,relatime shared:9 - " +
                   type + " cgroup " + options + "\n";
    }
    ControlGroups found(const std::string& cgroup) {
        write_file(folder_ / "cgroup", cgroup);
        write_file(folder_ / "mountinfo", "21 23 0:20 / / rw - ext4 /dev/vda rw\n" + mounts_);
        return control_groups(folder_ / ".");
    }
    static void limit(const std::string& folder, const char* most, const char* used,
                      const char* stat) {
        write_file(folder + "/memory.max", most);
        write_file(folder + "/memory.current", used);
        write_file(folder + "/memory.stat", stat);
    }
    TempFolder folder_;
    std::string mounts_;
};

constexpr const char* kStat =
    "anon 100\nfile 700\nshmem 50\ninactive_anon 1\nactive_anon 2\n"
    "inactive_file 600\nactive_file 40\nunevictable 0\n";

TEST_F(ControlGroup, CountsPagesOfFilesAsAvailable) {
    const std::string root = group("v2");
    mounted("/", "v2", "cgroup2", "rw,nsdelegate");
    const auto left = [&](const char* most, const char* used, const char* stat) {
        limit(root, most, used, stat);
        return found("0::/\n").memory_left;
    };
    EXPECT_EQ(left("1000\n", "800\n", kStat), 1000 - (800 - 640));
    EXPECT_EQ(left("1000\n", "800\n", ""), 200);
    EXPECT_EQ(left("1000\n", "500\n", kStat), 1000) << "read a little later";
    EXPECT_EQ(left("100\n", "800\n", kStat), 0) << "a limit that was lowered";
    EXPECT_EQ(left("max\n", "800\n", kStat), std::nullopt);
}

TEST_F(ControlGroup, IsAsSmallAsTheSmallestAboveIt) {
    // As systemd and Slurm make them, without a namespace.
    group("v2/system.slice/job 1/step/task");
    mounted("/", "v2", "cgroup2", "rw");
    limit(group("v2/system.slice/job 1"), "1000\n", "300\n", "");
    limit(group("v2/system.slice/job 1/step"), "max\n", "200\n", "");
    limit(group("v2/system.slice/job 1/step/task"), "900\n", "100\n", "");
    write_file(folder_ / "v2/system.slice/cpu.max", "400000 100000\n");
    write_file(folder_ / "v2/system.slice/job 1/cpu.max", "150000 100000\n");
    write_file(folder_ / "v2/system.slice/job 1/step/cpu.max", "max 100000\n");
    const ControlGroups groups = found("0::/system.slice/job 1/step/task\n");
    EXPECT_EQ(groups.memory_left, 700);
    EXPECT_EQ(groups.cpus, 1.5);
    EXPECT_EQ(groups.cpu_group, folder_ / "v2/system.slice/job 1");
}

// The first of groups that allow as much is named: the one of the process itself.
TEST_F(ControlGroup, NamesTheInnermostOfGroupsThatAllowAsManyProcessors) {
    group("v2/outer/inner");
    mounted("/", "v2", "cgroup2", "rw");
    write_file(folder_ / "v2/outer/cpu.max", "200000 100000\n");
    write_file(folder_ / "v2/outer/inner/cpu.max", "100000 50000\n");
    const ControlGroups groups = found("0::/outer/inner\n");
    EXPECT_EQ(groups.cpus, 2);
    EXPECT_EQ(groups.cpu_group, folder_ / "v2/outer/inner");
}

TEST_F(ControlGroup, LimitsNothingWhereItsUseIsUnknown) {
    const std::string root = group("v2");
    mounted("/", "v2", "cgroup2", "rw");
    write_file(root + "/memory.max", "1000\n");
    EXPECT_EQ(found("0::/\n").memory_left, std::nullopt);
    write_file(root + "/memory.current", "300\n");
    EXPECT_EQ(found("0::/\n").memory_left, 700);
}

TEST_F(ControlGroup, IsReadInVersion1) {
    mounted("/", "memory", "cgroup", "rw,memory");
    mounted("/", "cpu", "cgroup", "rw,cpu,cpuacct");
    const std::string job = group("memory/slurm/job_1");
    write_file(group("memory") + "/memory.limit_in_bytes", "9223372036854771712\n");
    write_file(group("memory") + "/memory.usage_in_bytes", "5\n");
    write_file(job + "/memory.limit_in_bytes", "1000\n");
    write_file(job + "/memory.usage_in_bytes", "800\n");
    write_file(job + "/memory.stat",
               "cache 1\ninactive_file 1\nactive_file 2\n"
               "total_inactive_file 300\ntotal_active_file 40\n");
    const std::string cpu = group("cpu/docker/abc");
    write_file(cpu + "/cpu.cfs_quota_us", "50000\n");
    write_file(cpu + "/cpu.cfs_period_us", "100000\n");
    const std::string lines =
        "9:name=systemd:/\n4:memory:/slurm/job_1\n3:cpuset:/\n1:cpu,cpuacct:/docker/abc\n0::/\n";
    EXPECT_EQ(found(lines).memory_left, 1000 - (800 - 340));
    EXPECT_EQ(found(lines).cpus, 0.5);
    write_file(cpu + "/cpu.cfs_quota_us", "-1\n");
    EXPECT_EQ(found(lines).cpus, std::nullopt);
    EXPECT_EQ(found("4:memory:/\n").memory_left, std::nullopt);
}

TEST_F(ControlGroup, OfAContainerIsWhatIsMounted) {
    limit(group("v2"), "1000\n", "400\n", "");
    mounted("/docker/abc", "v2", "cgroup2", "rw");
    limit(group("v2/inner"), "500\n", "100\n", "");
    EXPECT_EQ(found("0::/docker/abc\n").memory_left, 600) << "without a namespace";
    EXPECT_EQ(found("0::/docker/abc/inner\n").memory_left, 400);
    EXPECT_EQ(found("0::/\n").memory_left, 600) << "mounted before the namespace";
    EXPECT_EQ(found("0::/../..\n").memory_left, 600) << "moved out of it";
}

TEST_F(ControlGroup, OfNothingLimitsNothing) {
    EXPECT_EQ(found("0::/\n").memory_left, std::nullopt);
    EXPECT_EQ(found("nonsense\n").cpus, std::nullopt);
    EXPECT_EQ(control_groups(folder_ / "none").memory_left, std::nullopt);
}

TEST(AvailableMemory, IsKnown) {
    EXPECT_GT(available_memory(), 0);
    EXPECT_LT(available_memory(), int64_t{1} << 60);
}

}  // namespace
}  // namespace vocabpipe::testing
