// SPDX-License-Identifier: Apache-2.0
// Tables and columns as in "SQLite Export Schema Reference" of Nsight Systems' documentation.
#include "src/imported/nsys_database.hpp"

#include "vocabpipe/error.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace vocabpipe::imported {

namespace {

/// A database that is only read.
class Database {
public:
    explicit Database(const std::string& path) : path_(path) {
        sqlite3* opened = nullptr;
        const int status = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
        database_.reset(opened);
        if (status != SQLITE_OK) fail();
    }

    /// Calls `take` for every row of the answer.
    template <class Take>
    void select(const std::string& query, const Take& take) const {
        sqlite3_stmt* made = nullptr;
        const int status = sqlite3_prepare_v2(database_.get(), query.c_str(), -1, &made, nullptr);
        const std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)> rows(made,
                                                                              &sqlite3_finalize);
        if (status != SQLITE_OK) fail();
        int step = SQLITE_ROW;
        while ((step = sqlite3_step(rows.get())) == SQLITE_ROW) take(rows.get());
        if (step != SQLITE_DONE) fail();
    }

    [[nodiscard]] bool has_table(const std::string& name) const {
        bool found = false;
        select("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '" + name + "'",
               [&](sqlite3_stmt*) { found = true; });
        return found;
    }

private:
    [[noreturn]] void fail() const {
        throw InputFileError(path_ + ": " + sqlite3_errmsg(database_.get()) +
                             "; use a file of nsys export --type sqlite");
    }

    std::string path_;
    std::unique_ptr<sqlite3, decltype(&sqlite3_close)> database_{nullptr, &sqlite3_close};
};

/// A thread's number without its lowest 24 bits is that of its process.
constexpr int64_t kProcessOf = ~int64_t{0xffffff};

std::string text_at(sqlite3_stmt* row, int column) {
    const unsigned char* const text = sqlite3_column_text(row, column);
    return text == nullptr ? "" : reinterpret_cast<const char*>(text);
}

/// A piece of work on a GPU and when the host launched it.
struct Launch {
    int64_t launched_ns = 0;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
};

/// By process, in the order of their launches.
std::map<int64_t, std::vector<Launch>> read_launches(const Database& database) {
    std::map<int64_t, std::vector<Launch>> launches;
    if (!database.has_table("CUPTI_ACTIVITY_KIND_RUNTIME")) return launches;
    for (const char* const kind : {"KERNEL", "MEMCPY", "MEMSET"}) {
        const std::string table = std::string("CUPTI_ACTIVITY_KIND_") + kind;
        if (!database.has_table(table)) continue;
        const std::string process = "(call.globalTid & " + std::to_string(kProcessOf) + ")";
        database.select(
            "SELECT " + process + ", call.start, work.start, work.end FROM " + table +
                " AS work JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS call ON call.correlationId = "
                "work.correlationId AND " +
                process + " = work.globalPid",
            [&](sqlite3_stmt* row) {
                launches[sqlite3_column_int64(row, 0)].push_back({sqlite3_column_int64(row, 1),
                                                                  sqlite3_column_int64(row, 2),
                                                                  sqlite3_column_int64(row, 3)});
            });
    }
    for (auto& [process, list] : launches) {
        std::ranges::sort(list, {}, &Launch::launched_ns);
    }
    return launches;
}

/// Moves ranges to the work that was launched within them.
void move_to_gpu(std::vector<NamedRange>& ranges, const std::vector<Launch>& launches) {
    std::vector<NamedRange> moved;
    for (NamedRange& range : ranges) {
        auto launch = std::ranges::lower_bound(launches, range.begin_ns, {}, &Launch::launched_ns);
        if (launch == launches.end() || launch->launched_ns >= range.end_ns) continue;
        const int64_t until_ns = range.end_ns;
        range.begin_ns = launch->begin_ns;
        range.end_ns = launch->end_ns;
        for (; launch != launches.end() && launch->launched_ns < until_ns; ++launch) {
            range.begin_ns = std::min(range.begin_ns, launch->begin_ns);
            range.end_ns = std::max(range.end_ns, launch->end_ns);
        }
        moved.push_back(std::move(range));
    }
    ranges = std::move(moved);
}

}  // namespace

bool is_nsys_database(std::string_view head) {
    return head.starts_with("SQLite format 3");
}

std::vector<RankRanges> read_nsys_database(const std::string& path) {
    const Database database(path);
    std::map<int64_t, RankRanges> by_process;
    // Ranges of the enumeration's NvtxPushPopRange and NvtxStartEndRange; those that never ended
    // have no end.
    database.select(
        "SELECT range.globalTid, range.start, range.end, COALESCE(range.text, name.value) "
        "FROM NVTX_EVENTS AS range LEFT JOIN StringIds AS name ON name.id = range.textId "
        "WHERE range.eventType IN (59, 60) AND range.end >= range.start",
        [&](sqlite3_stmt* row) {
            by_process[sqlite3_column_int64(row, 0) & kProcessOf].ranges.push_back(
                {text_at(row, 3), sqlite3_column_int64(row, 1), sqlite3_column_int64(row, 2)});
        });
    if (by_process.empty()) {
        throw InputFileError(path +
                             ": has no NVTX ranges; record with nsys profile --trace nvtx,cuda");
    }
    std::string host;
    if (database.has_table("TARGET_INFO_SYSTEM_ENV")) {
        database.select("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'",
                        [&](sqlite3_stmt* row) { host = text_at(row, 0); });
    }
    int64_t epoch_ns = 0;
    if (database.has_table("TARGET_INFO_SESSION_START_TIME")) {
        database.select("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME",
                        [&](sqlite3_stmt* row) { epoch_ns = sqlite3_column_int64(row, 0); });
    }
    const std::map<int64_t, std::vector<Launch>> launches = read_launches(database);
    std::vector<RankRanges> ranks;
    for (auto& [process, rank] : by_process) {
        const auto launched = launches.find(process);
        if (launched != launches.end()) move_to_gpu(rank.ranges, launched->second);
        if (!add_to_clock(rank.ranges, epoch_ns)) {
            throw InputFileError(path + ": a time is out of range; export it again");
        }
        rank.file = path;
        rank.host = host;
        ranks.push_back(std::move(rank));
    }
    return ranks;
}

}  // namespace vocabpipe::imported
