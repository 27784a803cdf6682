// SPDX-License-Identifier: Apache-2.0
// Latency and bandwidth of the operations in programs, by transport; flags and table of nccl-tests.
//
//     bench_comm --transport threads --ranks 2 [-b 8 -e 32M -f 4 -n 20 -w 5]
//     mpirun -np 2 bench_comm --transport mpi
//     mpirun -np 2 bench_comm --transport shared-memory   processes of one host
//     bench_comm --transport copies --ranks 2             threads that share GPUs
//     mpirun -np 2 bench_comm --transport nccl            a GPU per process
//     bench_comm --transport nccl --ranks 2               a GPU per thread
//
// Data are bytes. time: by the host's clock on the slowest rank, from the start of n operations
// until the device is idle, divided by n. Columns: see comm_bench.hpp.
#include "benchmarks/comm_bench.hpp"
#include "src/tool/launch/devices.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/run_signals.hpp"
#include "vocabpipe/error.hpp"

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace vocabpipe;

constexpr const char* kProgram = "bench_comm";

struct Options {
    std::string transport = "threads";
    int ranks = 0;  // 0: 2 threads, or mpirun's
    uint64_t first_bytes = 8;
    uint64_t last_bytes = uint64_t{32} << 20;
    uint64_t factor = 4;
    int iterations = 20;
    int warmup = 5;
    std::vector<std::string> operations{bench::kOperationNames.begin(),
                                        bench::kOperationNames.end()};
};

/// Prints up to four digits in the width of a column.
void print_time(double microseconds) {
    std::printf("  %8.*f", microseconds >= 1000 ? 0 : microseconds >= 100 ? 1 : 2, microseconds);
}

/// Prints one operation's table on rank 0, appends bus bandwidths, and returns wrong bytes.
int64_t measure(Communicator& communicator, Device& device, Transport& transport, const Options& o,
                bench::Operation operation, std::vector<double>& bandwidths) {
    const bool prints = communicator.rank() == 0;
    if (prints) {
        std::printf("#\n# %s\n", bench::kOperationNames[static_cast<size_t>(operation)]);
        std::printf("# %10s  %12s  %8s  %6s  %6s  %8s  %6s  %6s %6s\n", "size", "count", "type",
                    "redop", "root", "time", "algbw", "busbw", "#wrong");
        std::printf("# %10s  %12s  %8s  %6s  %6s  %8s  %6s  %6s %6s\n", "(B)", "(elements)", "", "",
                    "", "(us)", "(GB/s)", "(GB/s)", "");
    }
    const bool rooted =
        operation == bench::Operation::broadcast || operation == bench::Operation::gather;
    int64_t wrong = 0;
    for (uint64_t bytes = o.first_bytes; bytes <= o.last_bytes; bytes *= o.factor) {
        const bench::CommTiming timing =
            bench::time_operation(communicator, device, transport,
                                  {.operation = operation,
                                   .bytes = static_cast<int64_t>(bytes),
                                   .iterations = o.iterations,
                                   .warmup = o.warmup});
        wrong += timing.wrong;
        bandwidths.push_back(timing.bus_bandwidth);
        if (!prints) continue;
        std::printf("%12lld  %12lld  %8s  %6s  %6d", static_cast<long long>(timing.bytes),
                    static_cast<long long>(timing.count), "uint8", "none", rooted ? 0 : -1);
        print_time(timing.seconds * 1e6);
        std::printf("  %6.2f  %6.2f %6lld\n", timing.algorithm_bandwidth, timing.bus_bandwidth,
                    static_cast<long long>(timing.wrong));
        std::fflush(stdout);
    }
    return wrong;
}

int64_t run(Communicator& communicator, const Options& o) {
    const int rank = communicator.rank();
    const bool prints = rank == 0;
    std::vector<RankPlacement> placements = find_placements(communicator);
    std::unique_ptr<Device> device;
    communicator.agree([&] {
        if (communicator.size() < 2) {
            throw UsageError(
                "one rank has nobody to talk to; give --ranks P or mpirun -np P, P >= 2");
        }
        const bool on_gpus = o.transport == "copies" || o.transport == "nccl";
        const auto make = tool::device_factory(on_gpus ? "cuda" : "host", o.transport == "copies");
        device = make ? make(placements[static_cast<size_t>(rank)]) : make_host_device();
    });
    describe_devices(communicator, *device, placements);
    if (prints) {
        std::printf(
            "# bench_comm: transport %s, %d ranks, minBytes %llu maxBytes %llu step: %llu(factor) "
            "warmup iters: %d iters: %d validation: 1\n#\n# Using devices\n",
            o.transport.c_str(), communicator.size(),
            static_cast<unsigned long long>(o.first_bytes),
            static_cast<unsigned long long>(o.last_bytes),
            static_cast<unsigned long long>(o.factor), o.warmup, o.iterations);
        for (size_t i = 0; i < placements.size(); ++i) {
            std::printf("#  Rank %2zu on %s device %s\n", i, placements[i].host.c_str(),
                        placements[i].device.c_str());
        }
        std::fflush(stdout);
    }
    const std::unique_ptr<Transport> opened = device->open_transport(communicator);
    Transport& transport = opened ? *opened : communicator.transport();
    int64_t wrong = 0;
    std::vector<double> bandwidths;
    for (const std::string& name : o.operations) {
        const auto& names = bench::kOperationNames;
        const auto at = std::find(names.begin(), names.end(), name) - names.begin();
        wrong += measure(communicator, *device, transport, o, static_cast<bench::Operation>(at),
                         bandwidths);
    }
    communicator.barrier();
    if (prints) {
        double sum = 0;
        for (const double one : bandwidths) sum += one;
        std::printf("#\n# Out of bounds values : %lld %s\n# Avg bus bandwidth    : %g\n",
                    static_cast<long long>(wrong), wrong == 0 ? "OK" : "FAILED",
                    bandwidths.empty() ? 0 : sum / static_cast<double>(bandwidths.size()));
    }
    return wrong;
}

void add_flags(CLI::App& app, Options& o, tool::Launch& launch) {
    const CLI::AsSizeValue sizes(/*kb_is_1000=*/false);
    app.add_option("--transport", o.transport,
                   "threads, mpi, shared-memory: between hosts' memories; copies: between threads "
                   "on GPUs that "
                   "they may share; nccl: between GPUs")
        ->check(CLI::IsMember({"threads", "mpi", "shared-memory", "copies", "nccl"}))
        ->capture_default_str();
    app.add_option("--ranks", o.ranks,
                   "Threads; without it 2, for mpi, shared-memory and nccl those of mpirun");
    app.add_option("-b,--minbytes", o.first_bytes, "Smallest size, such as 8 or 4K")
        ->transform(sizes)
        ->check(CLI::PositiveNumber);
    app.add_option("-e,--maxbytes", o.last_bytes, "Largest size, such as 32M")
        ->transform(sizes)
        ->check(CLI::PositiveNumber);
    app.add_option("-f,--stepfactor", o.factor, "From one size to the next")
        ->check(CLI::Range(2, 1 << 20))
        ->capture_default_str();
    app.add_option("-n,--iters", o.iterations, "Operations timed together")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("-w,--warmup_iters", o.warmup)
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_option("--operations", o.operations)
        ->delimiter(',')
        ->check(CLI::IsMember(std::vector<std::string>(bench::kOperationNames.begin(),
                                                       bench::kOperationNames.end())));
    app.add_option("--distributed-timeout-seconds", launch.timeout_seconds)
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    tool::Launch launch;
    CLI::App app("Latency and bandwidth of transports, in the manner of nccl-tests");
    add_flags(app, options, launch);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);
        return tool::report_before_launch(
            kProgram, std::string(error.what()) + "; see bench_comm --help", ExitCode::usage);
    }
    const bool threads =
        options.ranks > 0 || options.transport == "threads" || options.transport == "copies";
    launch.transport = threads ? "threads" : "mpi";
    launch.ranks = options.ranks > 0 ? options.ranks : 2;
    const bool processes = options.transport == "mpi" || options.transport == "shared-memory";
    if (processes) launch.on_host = options.transport;
    if (processes && options.ranks > 0) {
        return tool::report_before_launch(kProgram,
                                          "--ranks " + std::to_string(options.ranks) +
                                              ": with --transport " + options.transport +
                                              " the ranks are those of mpirun -np P",
                                          ExitCode::usage);
    }
    install_run_signals();
    std::atomic<int64_t> wrong{0};
    const int code = tool::run_ranks(
        kProgram, launch, [&](Communicator& communicator) { wrong = run(communicator, options); });
    return code == 0 && wrong > 0 ? static_cast<int>(ExitCode::failed) : code;
}
