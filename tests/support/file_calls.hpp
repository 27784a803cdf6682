// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe::testing {

/// The calls by which this program changes what is under a folder, and what a loss of power would
/// leave of it: of files and folders what fsync() has written, and every name at any time. One
/// object at a time, in a program that links file_calls.cpp, whose open(), write(), fsync() and so
/// on come before those of the C library. What a FILE or a stream writes is not seen.
class FileCalls {
public:
    explicit FileCalls(const std::string& folder);
    ~FileCalls();
    FileCalls(const FileCalls&) = delete;
    FileCalls& operator=(const FileCalls&) = delete;

    /// "create NAME", "write NAME", "sync NAME", "rename FROM TO" and "remove NAME", in order;
    /// equal ones in a row once. Names are those within the folder, which is "."; a temporary one
    /// ends with ".partial", without its numbers.
    [[nodiscard]] std::vector<std::string> list() const;
    /// Without "create" and "write".
    [[nodiscard]] std::vector<std::string> list_after_writing() const;
    [[nodiscard]] size_t count(std::string_view call) const;
    /// Files and folders that got a name while not all of what they hold was durable.
    [[nodiscard]] std::set<std::string> torn() const;
    /// What a loss of power would take something of now.
    [[nodiscard]] std::set<std::string> unsynced() const;

    /// From now on every second call that reads or writes is interrupted by a signal, and the
    /// others move no more than so many bytes.
    void interrupt(size_t most_bytes);
    /// From now on fsync() fails so.
    void fail_syncs(int error);

    // What the calls tell. `path` is as given to them; the answer is the name, if it is one within
    // the folder.
    using Lock = std::unique_lock<std::mutex>;
    [[nodiscard]] Lock lock() const { return Lock(mutex_); }
    [[nodiscard]] std::optional<std::string> name_of(const std::string& path) const;
    [[nodiscard]] std::optional<std::string> name_of(int file) const;
    void created(const std::string& name, bool folder);
    void written(const std::string& name);
    void synced(const std::string& name);
    void renamed(const std::string& from, const std::string& to);
    void removed(const std::string& name);
    [[nodiscard]] int sync_error() const { return sync_error_; }
    /// How many of the bytes may move now; none: the call is interrupted.
    [[nodiscard]] std::optional<size_t> allowed(size_t bytes);

private:
    void note(const std::string& call);
    void parent_changed(const std::string& name);

    std::string folder_;
    mutable std::mutex mutex_;
    std::vector<std::string> calls_;
    std::set<std::string> torn_, unsynced_;
    size_t most_bytes_ = 0;  ///< 0: any number
    bool interrupted_ = false;
    int sync_error_ = 0;
};

}  // namespace vocabpipe::testing
