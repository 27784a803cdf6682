// SPDX-License-Identifier: Apache-2.0
#include "src/imported/nsys_database.hpp"

#include "tests/imported/nsys_file.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace vocabpipe::imported {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using ::vocabpipe::testing::TempFolder;
using ::vocabpipe::testing::write_nsys_file;

constexpr int64_t kProcess = int64_t{7} << 24;  // threads of a process count from it
constexpr int64_t kOther = int64_t{9} << 24;

std::string row(const std::string& table, const std::string& values) {
    return "INSERT INTO " + table + " VALUES (" + values + ");";
}
std::string range(int64_t begin, const std::string& end, int type, const std::string& text,
                  int64_t thread, const std::string& text_id = "NULL") {
    return row("NVTX_EVENTS", std::to_string(begin) + "," + end + "," + std::to_string(type) +
                                  ",NULL," + text + "," + std::to_string(thread) + "," + text_id +
                                  ",0");
}
/// A call of a thread at `at`, and the work of `process` on the GPU that it launched.
std::string launch(const std::string& kind, int64_t at, int64_t thread, int64_t process,
                   int correlation, int64_t begin, int64_t end) {
    return row("CUPTI_ACTIVITY_KIND_RUNTIME", std::to_string(at) + "," + std::to_string(at + 1) +
                                                  "," + std::to_string(thread) + "," +
                                                  std::to_string(correlation) + ",1") +
           row("CUPTI_ACTIVITY_KIND_" + kind, std::to_string(begin) + "," + std::to_string(end) +
                                                  ",0," + std::to_string(correlation) + "," +
                                                  std::to_string(process));
}

TEST(NsysDatabase, HasTheRangesOfEveryProcess) {
    const TempFolder folder;
    const std::string path = folder / "run.sqlite";
    write_nsys_file(path, row("StringIds", "5,'backward-compute'") +
                              row("TARGET_INFO_SESSION_START_TIME", "1000000,'now'") +
                              row("TARGET_INFO_SYSTEM_ENV", "1,'','Kernel',0,'6.1'") +
                              row("TARGET_INFO_SYSTEM_ENV", "1,'','Hostname',0,'alpha'") +
                              range(40, "90", 60, "NULL", kOther + 3, "5") +
                              range(10, "30", 59, "'forward-compute'", kProcess + 1) +
                              range(50, "50", 59, "'empty'", kProcess + 2) +
                              range(60, "NULL", 59, "'never ended'", kProcess + 1) +
                              range(70, "80", 34, "'a mark'", kProcess + 1));
    const std::vector<RankRanges> ranks = read_nsys_database(path);
    ASSERT_EQ(ranks.size(), 2U);
    EXPECT_EQ(ranks[0].host, "alpha");
    EXPECT_EQ(ranks[0].rank, -1);
    ASSERT_EQ(ranks[0].ranges.size(), 2U);
    EXPECT_EQ(ranks[0].ranges[0].name, "forward-compute");
    EXPECT_EQ(ranks[0].ranges[0].begin_ns, 1000010);
    EXPECT_EQ(ranks[0].ranges[0].end_ns, 1000030);
    EXPECT_EQ(ranks[0].ranges[1].name, "empty");
    ASSERT_EQ(ranks[1].ranges.size(), 1U);
    EXPECT_EQ(ranks[1].ranges[0].name, "backward-compute");
    EXPECT_EQ(ranks[1].ranges[0].end_ns, 1000090);
}

TEST(NsysDatabase, MovesRangesToTheWorkThatTheirProcessLaunchedWithinThem) {
    const TempFolder folder;
    const std::string path = folder / "run.sqlite";
    // Correlations are those of a process alone; autograd launches from a thread of its own.
    write_nsys_file(path, range(10, "20", 59, "'forward-compute'", kProcess + 1) +
                              range(20, "40", 59, "'backward-compute'", kProcess + 1) +
                              range(50, "60", 59, "'on the host'", kProcess + 1) +
                              range(10, "20", 59, "'forward-compute'", kOther + 1) +
                              launch("KERNEL", 12, kProcess + 1, kProcess, 1, 100, 130) +
                              launch("MEMCPY", 14, kProcess + 1, kProcess, 2, 90, 95) +
                              launch("KERNEL", 20, kProcess + 2, kProcess, 3, 140, 150) +
                              launch("KERNEL", 39, kProcess + 2, kProcess, 4, 150, 190) +
                              launch("KERNEL", 40, kProcess + 1, kProcess, 5, 200, 210) +
                              launch("KERNEL", 15, kOther + 1, kOther, 1, 300, 310));
    const std::vector<RankRanges> ranks = read_nsys_database(path);
    ASSERT_EQ(ranks.size(), 2U);
    ASSERT_EQ(ranks[0].ranges.size(), 2U);
    EXPECT_EQ(ranks[0].ranges[0].begin_ns, 90);
    EXPECT_EQ(ranks[0].ranges[0].end_ns, 130);
    EXPECT_EQ(ranks[0].ranges[1].begin_ns, 140);
    EXPECT_EQ(ranks[0].ranges[1].end_ns, 190);
    ASSERT_EQ(ranks[1].ranges.size(), 1U);
    EXPECT_EQ(ranks[1].ranges[0].begin_ns, 300);
}

TEST(NsysDatabase, IsRefusedWithSqlitesMessage) {
    const TempFolder folder;
    const auto refused = [&](const std::string& path, const std::string& what) {
        EXPECT_THAT([&] { return read_nsys_database(path); },
                    ThrowsMessage<InputFileError>(HasSubstr(what)))
            << path;
    };
    const std::string damaged = folder / "damaged.sqlite";
    std::ofstream(damaged) << "SQLite format 3" << std::string(200, 'x');
    refused(damaged, "damaged.sqlite: file is not a database; use a file of nsys export");
    const std::string other = folder / "other.sqlite";
    write_nsys_file(other, "DROP TABLE NVTX_EVENTS;");
    refused(other, "other.sqlite: no such table: NVTX_EVENTS; use a file of nsys export");
    const std::string empty = folder / "empty.sqlite";
    write_nsys_file(empty, "");
    refused(empty, "empty.sqlite: has no NVTX ranges; record with nsys profile");
    const std::string late = folder / "late.sqlite";
    write_nsys_file(late, range(INT64_MAX - 5, std::to_string(INT64_MAX), 59, "'a'", kProcess) +
                              row("TARGET_INFO_SESSION_START_TIME", "1000000,'now'"));
    refused(late, "late.sqlite: a time is out of range");
}

}  // namespace
}  // namespace vocabpipe::imported
