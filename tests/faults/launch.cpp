// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/launch.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace vocabpipe::testing {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{10};

/// What can be read of it: files of /proc end with an error where their process does.
std::string whole_file(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

void redirect(int to, const std::string& path, int flags) {
    const int file = ::open(path.c_str(), flags, 0600);
    if (file < 0 || ::dup2(file, to) < 0) ::_exit(126);
    ::close(file);
}

}  // namespace

void signal_process(pid_t pid, int number) {
    if (pid <= 1) throw std::runtime_error("no process to signal: " + std::to_string(pid));
    ::kill(pid, number);
}

Job::Job(const TempFolder& folder, const Arguments& command)
    : out_(folder / "stdout"), err_(folder / "stderr") {
    for (const std::string& old : {out_, err_}) std::filesystem::remove(old);  // of another job
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ > 0) {
        ::setpgid(pid_, pid_);  // both do it: whoever comes first
        return;
    }
    ::setpgid(0, 0);
    redirect(0, "/dev/null", O_RDONLY);
    redirect(1, out_, O_WRONLY | O_CREAT | O_TRUNC);
    redirect(2, err_, O_WRONLY | O_CREAT | O_TRUNC);
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                             "OMPI_MCA_rmaps_base_oversubscribe"}) {
        ::setenv(name, "1", 1);
    }
    ::setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 1);  // Open MPI 5
    ::setenv("OMPI_MCA_btl_vader_backing_directory", (shared_memory_ / "").c_str(), 1);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
}

Job::~Job() {
    if (waited_ || pid_ <= 1) return;
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

bool Job::ended() {
    if (!waited_) waited_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return waited_;
}

int Job::wait(std::chrono::seconds limit) {
    const auto deadline = Clock::now() + limit;
    while (!ended()) {
        if (Clock::now() > deadline) {
            ADD_FAILURE() << "did not end within " << limit.count() << " s; its output:\n"
                          << whole_file(out_) << whole_file(err_);
            return -1;
        }
        std::this_thread::sleep_for(kLook);
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

bool Job::wait_for_output(const std::string& text, std::chrono::seconds limit) {
    const auto deadline = Clock::now() + limit;
    while (whole_file(out_).find(text) == std::string::npos) {
        if (ended() || Clock::now() > deadline) {
            ADD_FAILURE() << "no '" << text << "' in the output:\n"
                          << whole_file(out_) << whole_file(err_);
            return false;
        }
        std::this_thread::sleep_for(kLook);
    }
    return true;
}

std::vector<std::string> lines_with(const std::string& text, const std::string& prefix) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        // Open MPI 5 may put a line behind what another rank, or itself, has begun to say.
        const size_t at = line.find(prefix);
        if (at == 0 || (at != std::string::npos && has_open_mpi_5())) {
            lines.push_back(line.substr(at));
        }
    }
    return lines;
}

std::vector<pid_t> train_processes(const std::string& marker) {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const pid_t pid = std::atoi(entry.path().filename().c_str());
        if (pid <= 0) continue;
        const std::string command = whole_file(entry.path().string() + "/cmdline");
        const std::string program = std::filesystem::path(command.c_str()).filename();
        if (program == "train_gpt" && command.find(marker) != std::string::npos) {
            found.push_back(pid);
        }
    }
    return found;
}

namespace {

/// The rank that mpirun gave to a process; -1 if it is none of mpirun's.
int rank_of(pid_t pid) {
    const std::string environment = whole_file("/proc/" + std::to_string(pid) + "/environ");
    const std::string name = "OMPI_COMM_WORLD_RANK=";
    const size_t at = environment.find(name);
    return at == std::string::npos ? -1 : std::atoi(environment.c_str() + at + name.size());
}

}  // namespace

std::vector<pid_t> rank_processes(const std::string& marker, int ranks) {
    std::vector<pid_t> by_rank(static_cast<size_t>(ranks), -1);
    int found = 0;
    for (const pid_t pid : train_processes(marker)) {
        const int rank = rank_of(pid);
        if (rank < 0 || rank >= ranks || by_rank[static_cast<size_t>(rank)] > 0) continue;
        by_rank[static_cast<size_t>(rank)] = pid;
        ++found;
    }
    if (found == ranks) return by_rank;
    ADD_FAILURE() << "found " << found << " of " << ranks << " processes";
    return {};
}

std::vector<pid_t> left_over(const std::string& marker, std::chrono::seconds limit) {
    const auto deadline = Clock::now() + limit;
    std::vector<pid_t> left = train_processes(marker);
    while (!left.empty() && Clock::now() < deadline) {
        std::this_thread::sleep_for(kLook);
        left = train_processes(marker);
    }
    for (const pid_t pid : left) signal_process(pid, SIGKILL);  // not into the next test
    return left;
}

void write_dataset(const std::string& prefix, const std::vector<uint16_t>& tokens) {
    const auto count = static_cast<int32_t>(tokens.size());
    write_file(prefix + ".bin", std::string(reinterpret_cast<const char*>(tokens.data()),
                                            tokens.size() * sizeof(uint16_t)));
    write_file(prefix + ".idx", std::string("MMIDIDX\0\0", 9) + bytes_of<uint64_t>({1}) +
                                    bytes_of<uint8_t>({8}) + bytes_of<uint64_t>({1, 2}) +
                                    bytes_of<int32_t>({count}) + bytes_of<int64_t>({0, 0, 1}));
}

std::vector<uint16_t> some_tokens(size_t count) {
    std::vector<uint16_t> tokens(count);
    for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<uint16_t>(i * i % 257);
    return tokens;
}

std::map<int64_t, std::string> curve(const std::string& metrics) {
    std::map<int64_t, std::string> steps;
    std::istringstream lines(read_file(metrics));
    for (std::string line; std::getline(lines, line);) {
        const auto step = nlohmann::json::parse(line, nullptr, false);
        if (step.is_discarded()) continue;
        steps[step.at("step")] = step.at("loss").dump() + " " + step.at("grad_norm").dump();
    }
    return steps;
}

Arguments under_mpirun(int ranks, const Arguments& arguments) {
    return Arguments{VOCABPIPE_MPIRUN, "--oversubscribe", "-np", std::to_string(ranks),
                     VOCABPIPE_TRAIN_GPT} +
           arguments;
}

bool has_open_mpi_5() {
    static const bool is_5 =
        std::system("'" VOCABPIPE_MPIRUN "' --version | grep -q 'Open MPI) 5'") == 0;
    return is_5;
}

Arguments each_under_mpirun(const std::vector<Arguments>& commands, int ranks) {
    const int all_ranks = std::max(ranks, static_cast<int>(commands.size()));
    Arguments all{VOCABPIPE_MPIRUN, "--oversubscribe", "-np", std::to_string(all_ranks),
                  VOCABPIPE_BY_RANK};
    for (const Arguments& command : commands) {
        if (&command != &commands.front()) all.emplace_back("::");
        all.insert(all.end(), command.begin(), command.end());
    }
    return all;
}

Arguments on_threads(int ranks, const Arguments& arguments) {
    return Arguments{VOCABPIPE_TRAIN_GPT, "--transport", "threads", "--ranks",
                     std::to_string(ranks)} +
           arguments;
}

Arguments small_model(const std::string& data_path) {
    return {"--num-layers",  "4",  "--hidden-size",      "32",  "--num-attention-heads", "2",
            "--seq-length",  "32", "--vocab-size",       "257", "--global-batch-size",   "8",
            "--train-iters", "2",  "--threads-per-rank", "1",   "--data-path",           data_path};
}

Arguments operator+(Arguments left, const Arguments& right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

}  // namespace vocabpipe::testing
