// SPDX-License-Identifier: Apache-2.0
// Starts ranks as threads or MPI processes, checks that all run the same program with the same
// flags, and turns failures into one line on stderr and an exit code.
#include "src/tool/launch/launch.hpp"

#include "src/step/same_on_every_rank.hpp"
#include "src/support/crc32c.hpp"
#include "src/support/joined.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/tool/launch/devices.hpp"
#include "src/tool/launch/launcher_watch.hpp"
#include "src/tool/launch/launchers.hpp"
#include "src/tool/launch/run_signals.hpp"
#include "src/tool/launch/watchdog.hpp"
#include "src/tool/support/flag_names.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/run/run_limits.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

namespace vocabpipe::tool {

namespace {

/// The default of --transport-on-host; measured in docs/performance.md.
constexpr const char* kOnHost = "shared-memory";

/// Signals that a batch system or a user may choose.
constexpr std::array kExitSignals{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGALRM, SIGXCPU};

std::vector<std::string> exit_signals() {
    std::vector<std::string> names;
    for (const int signal : kExitSignals) names.push_back(name_of_signal(signal));
    return names;
}

int signal_from(const std::string& name) {
    for (const int signal : kExitSignals) {
        if (name_of_signal(signal) == name) return signal;
    }
    throw UsageError("--exit-signal " + name + ": must be one of " + joined(exit_signals()));
}

int report(const char* program, const std::string& what, ExitCode code, bool print) {
    if (print) {
        std::fflush(stdout);
        const std::string named = with_flags(what, Caller::train_gpt);
        std::fprintf(stderr, "%s: error: %s\n", program, short_line(named).c_str());
    }
    return static_cast<int>(code);
}

constexpr const char* kSameEverywhere = "start every rank with the same flags and the same program";

/// Checksum of this process's executable; "unknown" if it cannot be read.
std::string binary() {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    std::vector<char> block(size_t{1} << 20);
    uint32_t sum = 0;
    while (file.read(block.data(), std::ssize(block)) || file.gcount() > 0) {
        sum =
            crc32c(std::as_bytes(std::span(block).first(static_cast<size_t>(file.gcount()))), sum);
    }
    return file.eof() ? "the binary with the checksum " + std::to_string(sum) : "unknown";
}

/// The lines that the ranks of a launch must have alike.
std::vector<std::string> compared_lines(const char* program, Launch launch) {
    std::vector<std::string> lines{program, binary()};
    for (const auto& more : {compared_flags({launch_flags(launch)}), launch.compared}) {
        lines.insert(lines.end(), more.begin(), more.end());
    }
    return lines;
}

/// Open MPI's wait before SIGTERM, and again after it: a parameter that mpirun passes on to its
/// ranks.
double sigkill_timeout() {
    const char* const given = std::getenv("OMPI_MCA_odls_base_sigkill_timeout");
    const double seconds = given == nullptr ? 0 : std::atof(given);
    return seconds > 0 ? seconds : 1;
}

/// Measured from SIGTERM to SIGKILL with 5.0.7.
constexpr double kOpenMpi5Seconds = 0.5;

/// Seconds that a launcher leaves until SIGKILL, with or without the signal that announces SIGTERM.
double launcher_grace_seconds(bool announced) {
    if (started_by_open_mpi_5()) return kOpenMpi5Seconds;
    return sigkill_timeout() * (announced ? 2 : 1);
}

/// Time that a rank that was told to end keeps waiting for others: the grace period less two thirds
/// of a second to two seconds, in which it says what it waited for.
double patience_seconds(double grace) {
    return std::max(grace / 3, grace - std::clamp(grace / 3, 2.0 / 3, 2.0));
}

/// Ends the process with a line if `call` takes too long; for calls that must not wait for other
/// processes and to which MPI gives no deadline.
std::unique_ptr<Watchdog> watch_over(const char* program, const char* call, double seconds) {
    return std::make_unique<Watchdog>(seconds, [program, call, seconds] {
        std::ostringstream what;
        what << call << " has not returned for --distributed-timeout-seconds " << seconds
             << ": a process of this launch is missing; check that mpirun starts only this program "
                "and that none of its ranks is stopped";
        std::_Exit(report_before_launch(program, what.str(), ExitCode::communication));
    });
}

}  // namespace

FlagGroup launch_flags(Launch& launch) {
    return {
        .title = "Ranks",
        .flags = {
            {.names = "--transport",
             .value = &launch.transport,
             .help = "mpi (under mpirun) or threads of one process",
             .unit = "NAME",
             .choices = {"mpi", "threads"},
             .decides = Decides::nothing},
            {.names = "--transport-on-host",
             .value = &launch.on_host,
             .help = "What ranks of one host send through with --transport mpi",
             .unit = "NAME",
             .choices = {"mpi", "shared-memory"},
             .unset = kOnHost,
             .decides = Decides::nothing},
            {.names = "--ranks",
             .value = &launch.ranks,
             .help = "Number of ranks with --transport threads",
             .unit = "RANKS",
             .unset = "with mpi, set by mpirun -np",
             .decides = Decides::nothing},
            {.names = "--distributed-timeout-seconds",
             .value = &launch.timeout_seconds,
             .help = "Time without progress after which a waiting rank exits with an error",
             .unit = "SECONDS",
             .range = above(0),
             .decides = Decides::nothing},
            {.names = "--sigterm-grace-seconds",
             .value = &launch.sigterm_grace_seconds,
             .help = "Time between SIGTERM and SIGKILL, in which a run finishes and saves its step",
             .unit = "SECONDS",
             .range = at_least(0),
             .unset = "mpirun's setting, 1",
             .decides = Decides::nothing},
            {.names = "--exit-signal",
             .value = FlagText{
                 .set = [&launch](
                            const auto& words) { launch.exit_signal = signal_from(words.back()); },
                 .get =
                     [&launch] {
                         return launch.exit_signal == 0 ? std::string()
                                                        : name_of_signal(launch.exit_signal);
                     }},
             .help =
                 "Another signal that finishes and saves the step and ends with exit code 0, as "
                 "SIGUSR1 and SIGUSR2 do: what a batch system sends before it ends a job",
             .unit = "NAME",
             .choices = exit_signals(),
             .decides = Decides::nothing},
        }};
}

void check_launch(const Launch& launch) {
    check_launcher(launch.ranks_are_threads());
    const std::string ranks = "--ranks " + std::to_string(launch.ranks.value_or(0));
    if (launch.ranks_are_threads() && launch.ranks.value_or(0) < 1) {
        throw UsageError(ranks + ": --transport threads requires --ranks P with P >= 1");
    }
    const char* started = std::getenv("OMPI_COMM_WORLD_SIZE");
    if (launch.ranks_are_threads() && started != nullptr && std::atoi(started) > 1) {
        throw UsageError(
            "--transport threads: mpirun started " + std::string(started) +
            " processes, and each would train by itself; omit mpirun or use --transport mpi");
    }
    if (launch.ranks_are_threads() && !launch.on_host.empty()) {
        throw UsageError("--transport-on-host " + launch.on_host +
                         ": is for --transport mpi; threads of one process share all memory");
    }
    if (!launch.ranks_are_threads() && launch.ranks) {
        throw UsageError(
            ranks + ": is only for --transport threads; with --transport mpi, set mpirun -np P");
    }
}

void check_launch(Launch& launch, TrainOptions& options) {
    check_launch(launch);
    options.ranks_are_threads = launch.ranks_are_threads();
    const auto of_gpus = [&](const std::string& flag) {
        if (options.device == "cuda") return;
        throw UsageError(flag + ": requires --device cuda, got " + options.device);
    };
    if (launch.sigterm_grace_seconds) {
        options.grace_seconds = *launch.sigterm_grace_seconds;
    } else if (!launch.ranks_are_threads() && started_by_mpirun()) {
        options.grace_is_fixed = started_by_open_mpi_5();
        options.grace_seconds = launcher_grace_seconds(/*announced=*/true);
    }
    GpuOptions& gpu = options.gpu;
    if (gpu.left_multiprocessors) {
        of_gpus("--left-multiprocessors " + std::to_string(*gpu.left_multiprocessors));
    }
    if (!gpu.product_choices_file.empty()) {
        of_gpus("--product-choices " + gpu.product_choices_file);
        gpu.product_choices = read_whole_file(
            gpu.product_choices_file, "set --product-choices to a file written by --time-products");
        if (gpu.product_choices.empty()) {
            throw InputFileError("--product-choices " + gpu.product_choices_file + ": is empty");
        }
    }
    if (gpu.nondeterministic_attention) of_gpus("--nondeterministic-attention");
    options.make_device = device_factory(options.device, launch.ranks_are_threads(), gpu);
}

std::string describe(const std::exception& error) {
    const auto* const of_system = dynamic_cast<const std::system_error*>(&error);
    if (of_system == nullptr || of_system->code() != std::errc::resource_unavailable_try_again) {
        return error.what();
    }
    return "cannot start a thread: " + of_system->code().message() +
           "; raise ulimit -u (threads per user) or ulimit -v (memory), whichever is set, or use "
           "fewer ranks or a smaller --threads-per-rank";
}

int report_before_launch(const char* program, const std::string& what, ExitCode code) {
    const bool print = first_of_launch();
    if (!print) std::this_thread::sleep_for(std::chrono::seconds(2));
    return report(program, what, code, print);
}

int finish_output(const char* program, ExitCode code) {
    std::cout.flush();
    errno = 0;
    const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
    if (!lost) return static_cast<int>(code);
    const std::string reason = errno == 0 ? "" : ": " + std::generic_category().message(errno);
    return report(
        program,
        "standard output: cannot write" + reason + "; free some space or redirect it elsewhere",
        ExitCode::failed, true);
}

Command comparing_flags(Command command, Launch& launch) {
    command.run = [flags = command.flags, run = std::move(command.run),
                   &launch](const GivenFlags& given) {
        launch.compared = compared_flags(flags);
        run(given);
    };
    return command;
}

int run_ranks(const char* program, const Launch& launch,
              const std::function<void(Communicator&)>& body) {
    const bool threads = launch.ranks_are_threads();
    int rank = 0;
    // Threads have no launcher that could lose a rank.
    std::function<bool()> interrupted;
    if (!threads) {
        interrupted = [given = launch.sigterm_grace_seconds] {
            return ending_signal() != 0 && seconds_since_terminated() >=
                                               patience_seconds(given.value_or(
                                                   launcher_grace_seconds(ending_was_announced())));
        };
    }
    const WaitOptions wait{.timeout_seconds = launch.timeout_seconds, .interrupted = interrupted};
    const auto make_world = [&] {
        if (threads) return World::threads(launch.ranks.value_or(0), wait);
        const auto watchdog = watch_over(program, "MPI_Init", launch.timeout_seconds);
        const std::string& on_host = launch.on_host.empty() ? kOnHost : launch.on_host;
        return World::mpi(wait, {.shared_memory = on_host == "shared-memory",
                                 .note =
                                     [program](const std::string& line) {
                                         std::fprintf(stderr, "%s: %s\n", program, line.c_str());
                                     },
                                 .before_connecting =
                                     [&](Communicator& communicator) {
                                         rank = communicator.rank();
                                         check_same_on_every_rank(communicator,
                                                                  compared_lines(program, launch),
                                                                  ExitCode::usage, kSameEverywhere);
                                         check_same_on_every_rank(
                                             communicator, launch.seen, ExitCode::input_file,
                                             "use the path of a folder that all hosts share");
                                     }});
    };
    try {
        std::optional<LauncherWatch> launcher;
        if (!threads && started_by_mpirun()) launcher.emplace();
        std::unique_ptr<Watchdog> finalising;  // outlives the world
        World world = make_world();
        const auto fail = [&](const std::string& what, ExitCode code) {
            report(program, what, code, true);
            // Other ranks notice the same loss at about this time: let them say what they waited
            // for.
            if (code == ExitCode::communication) {
                std::this_thread::sleep_for(std::chrono::milliseconds(300));
            }
            world.abort(static_cast<int>(code));
            return static_cast<int>(code);
        };
        try {
            world.run([&](Communicator& communicator) {
                if (!threads) rank = communicator.rank();
                body(communicator);
            });
        } catch (const AgreedError& error) {
            const int code = report(program, error.what(), error.exit_code(), rank == 0);
            if (!threads) finalising = watch_over(program, "MPI_Finalize", launch.timeout_seconds);
            return code;
        } catch (const Error& error) {
            return fail(error.what(), error.exit_code());
        } catch (const std::bad_alloc&) {
            return fail((threads ? std::string() : "rank " + std::to_string(rank) + ": ") +
                            "out of memory; use a smaller model or microbatch, or fewer ranks per "
                            "host",
                        ExitCode::out_of_memory);
        } catch (const std::exception& error) {
            return fail(describe(error), ExitCode::failed);
        }
        const int code = finish_output(program, ExitCode::ok);
        if (!threads) finalising = watch_over(program, "MPI_Finalize", launch.timeout_seconds);
        return code;
    } catch (const Error& error) {  // before there was a world
        return report(program, error.what(), error.exit_code(), first_of_launch());
    } catch (const std::system_error& error) {
        return report(program, describe(error), ExitCode::failed, first_of_launch());
    }
}

}  // namespace vocabpipe::tool
