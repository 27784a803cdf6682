// SPDX-License-Identifier: Apache-2.0
// Starts train_gpt as a user does, watches it and cleans up after it.
#pragma once

#include "tests/train/data/temp_folder.hpp"

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vocabpipe::testing {

using Arguments = std::vector<std::string>;

/// kill() for one process only: -1 and 0, which mean "everybody", throw.
void signal_process(pid_t pid, int number);

/// A running command, in a process group of its own, with its output in files of a folder.
class Job {
public:
    Job(const TempFolder& folder, const Arguments& command);
    ~Job();  ///< ends what still runs
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }
    void signal(int number) const { signal_process(pid_, number); }
    /// The exit code, 128 + n for signal n; a job that does not end in time is a failure and -1.
    int wait(std::chrono::seconds limit);
    /// Waits until the standard output has `text`; false if the job ends before.
    bool wait_for_output(const std::string& text, std::chrono::seconds limit);
    [[nodiscard]] std::string output() const { return read_file(out_); }
    [[nodiscard]] std::string error() const { return read_file(err_); }

private:
    bool ended();
    TempFolder shared_memory_;  ///< what Open MPI leaves behind when a process is killed
    std::string out_, err_;
    pid_t pid_ = -1;
    int status_ = -1;
    bool waited_ = false;
};

/// Lines of `text` that start with `prefix`.
[[nodiscard]] std::vector<std::string> lines_with(const std::string& text,
                                                  const std::string& prefix);

/// Processes of train_gpt with `marker` in their command line, the launcher not among them.
[[nodiscard]] std::vector<pid_t> train_processes(const std::string& marker);
/// The processes of the ranks that mpirun started with `marker` in their command line, by rank;
/// fails the test and is empty unless there is exactly one for each.
[[nodiscard]] std::vector<pid_t> rank_processes(const std::string& marker, int ranks);
/// Waits until no process with `marker` is left; returns those that are.
[[nodiscard]] std::vector<pid_t> left_over(const std::string& marker, std::chrono::seconds limit);

/// A Megatron dataset of one document, u16 tokens.
void write_dataset(const std::string& prefix, const std::vector<uint16_t>& tokens);
/// `count` tokens below 257 in a fixed pattern.
[[nodiscard]] std::vector<uint16_t> some_tokens(size_t count);

/// Loss and gradient norm by step of a --metrics file, as text: equal text, equal bits. The
/// last line of a killed run may be cut.
[[nodiscard]] std::map<int64_t, std::string> curve(const std::string& metrics);

/// mpirun -np N train_gpt
[[nodiscard]] Arguments under_mpirun(int ranks, const Arguments& arguments);
/// mpirun is Open MPI 5's, which kills ranks half a second after it has told them to end, and may
/// lose what they say meanwhile.
[[nodiscard]] bool has_open_mpi_5();
/// mpirun with a command of its own for every rank; the last one for all further `ranks`.
[[nodiscard]] Arguments each_under_mpirun(const std::vector<Arguments>& commands, int ranks = 0);
/// train_gpt --transport threads --ranks N
[[nodiscard]] Arguments on_threads(int ranks, const Arguments& arguments);
/// A model small enough that a step takes milliseconds.
[[nodiscard]] Arguments small_model(const std::string& data_path);
[[nodiscard]] Arguments operator+(Arguments left, const Arguments& right);

}  // namespace vocabpipe::testing
