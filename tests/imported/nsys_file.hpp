// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <string>

namespace vocabpipe::testing {

/// Writes a database with the tables of `nsys export --type sqlite` that imports read, and the rows
/// that `statements` insert. The columns are those of Nsight Systems' documentation; figures of
/// tests are made up.
inline void write_nsys_file(const std::string& path, const std::string& statements) {
    const std::string tables =
        "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);"
        "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT);"
        "CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, "
        "name TEXT NOT NULL, nameEnum INTEGER NOT NULL, value TEXT NOT NULL);"
        "CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,"
        "rangeId INTEGER, text TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, "
        "globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, "
        "deviceId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, "
        "deviceId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER);";
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK) << path;
    const int status =
        sqlite3_exec(database, (tables + statements).c_str(), nullptr, nullptr, nullptr);
    EXPECT_EQ(status, SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
}

}  // namespace vocabpipe::testing
