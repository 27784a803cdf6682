// SPDX-License-Identifier: Apache-2.0
// How much of a link's time is hidden by computing.
//
//     bench_overlap --virtual [--ranks 8 --pieces 1,4,8 --ratio 0.5,1,2 --op all_gather_gemm,...]
//     bench_overlap --ranks 2 [--link modelled:0.5] [--rows 1024 --inner 1024 --columns 1024]
//     mpirun -np 2 bench_overlap [--link modelled:0.5]
//     mpirun -np 2 bench_overlap --link nccl      a GPU per process; with --ranks 2 per thread
//     bench_overlap --ranks 2 --link copies       threads that share GPUs
//
// --virtual: computed without a clock, the same on every machine. Otherwise measured, with real
// products of one thread per rank (fp32) and real messages, or messages that a modelled link delays
// (it takes RATIO of the products' time). Times are the host's; on GPUs from the first launch until
// the device is idle.
//
// Columns: ratio, link time over compute time; bytes received by the rank that receives most;
// compute, link, blocking, overlapped in us, of the fastest round, each as long as its slowest
// rank; hidden = (compute + link - overlapped) / link; natural (virtual all-gather and
// reduce-scatter): the same with products in natural order, mean over ranks and of the slowest;
// chunks (virtual dispatch and combine): the same with all tokens in two chunks, each sent as a
// whole (FasterMoE, He et al. 2022), where blocking hides 0; adaptive (likewise): with whichever of
// 1, 2, 4 and 8 chunks takes the least time (Tutel, Hwang et al. 2023, which measures them);
// #wrong: elements of the overlapped result that differ from the blocking one in a bit.
//
// --load-std S,...: tokens choose experts unevenly, which has two columns more: std, the deviation
// of the experts' shares of all rows, and fullest, the rows of the fullest rank over the mean.
#include "benchmarks/team_bench.hpp"
#include "src/runtime/transport/transport.hpp"
#include "src/step/rank_placement.hpp"
#include "src/tool/launch/devices.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/launchers.hpp"
#include "src/train/profile/timed_experts.hpp"
#include "src/train/profile/timed_overlap.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/overlap.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace vocabpipe;

constexpr const char* kProgram = "bench_overlap";
constexpr int64_t kComputeNs = 1'000'000;
constexpr int64_t kRowBytes = 2048;

struct Options {
    bool in_virtual_time = false;
    int ranks = 0;  // 0: 8 in virtual time, else those of mpirun, or 2 threads
    std::vector<int> pieces{1, 4, 8};
    std::vector<double> ratios{0.5, 1, 2};
    double piece_us = 0;
    std::vector<std::string> ops;
    // When measured:
    std::string link = "real";
    std::vector<double> load_stds;  // empty: 0, and no columns of loads
    OverlapCase shape;
};

/// Pieces of all tokens, each sent as a whole, of which one is computed while the next travels. The
/// chunks in which combine sends the experts' output are those of a dispatch in reverse.
OverlapTimes in_chunks(int64_t bytes, const Link& link, int64_t piece_ns, std::vector<int> counts) {
    return choose_pieces({.op = OverlapOp::stream_in, .rows = bytes, .compute_ns = kComputeNs},
                         link, {.row_bytes = 1, .piece_ns = piece_ns}, counts)
        .times;
}

bool wanted(const Options& o, OverlapOp op) {
    return o.ops.empty() || std::find(o.ops.begin(), o.ops.end(), to_string(op)) != o.ops.end();
}

void print_row(const Options& o, OverlapOp op, int ranks, double ratio, int pieces) {
    const bool is_stream = op == OverlapOp::stream_in || op == OverlapOp::hop;
    const bool in_one_order = is_stream || op == OverlapOp::gather_attention;
    const int members = is_stream ? 1 : ranks;
    // Pieces of equal size, each large enough for a product of its own.
    const int64_t rows = TileMap::kFewestInProduct * members * pieces;
    const TileMap map = TileMap::even(rows, members, pieces);
    const int64_t bytes = kRowBytes * (members == 1 ? rows : rows / members * (members - 1));
    const Link link{.bytes_per_ns = static_cast<double>(bytes) / (ratio * kComputeNs)};
    const auto piece_ns = static_cast<int64_t>(o.piece_us * 1e3);
    const OverlapTimes times =
        overlap(op, map, kComputeNs, link, {.row_bytes = kRowBytes, .piece_ns = piece_ns});
    const auto us = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
    std::printf("%-20s %5.2f %6d %10lld %9.1f %9.1f %9.1f %10.1f %7.1f%%",
                std::string(to_string(op)).c_str(), ratio, map.pieces(0),
                static_cast<long long>(bytes), us(times.compute_ns), us(times.link_ns),
                us(times.blocking_ns), us(times.overlapped_ns), 100 * times.hidden());
    if (in_one_order) {
        std::printf("\n");
        return;
    }
    if (is_of_experts(op)) {
        std::printf(" %8s %8s %7.1f%% %7.1f%%\n", "", "",
                    100 * in_chunks(bytes, link, piece_ns, {2}).hidden(),
                    100 * in_chunks(bytes, link, piece_ns, {1, 2, 4, 8}).hidden());
        return;
    }
    double mean = 0;
    double least = 1;
    for (const OverlapTimes& rank : overlap_of_ranks(
             op, map, kComputeNs, link,
             {.row_bytes = kRowBytes, .order = ComputeOrder::natural, .piece_ns = piece_ns})) {
        mean += rank.hidden() / ranks;
        least = std::min(least, rank.hidden());
    }
    std::printf(" %7.1f%% %7.1f%%\n", 100 * mean, 100 * least);
}

void print_virtual(const Options& o) {
    const int ranks = o.ranks > 0 ? o.ranks : 8;
    std::printf("# virtual time, %d ranks\n", ranks);
    std::printf("%-20s %5s %6s %10s %9s %9s %9s %10s %8s %8s %8s %8s %8s\n", "# op", "ratio",
                "pieces", "bytes", "compute", "link", "blocking", "overlapped", "hidden", "natural",
                "slowest", "chunks", "adaptive");
    for (const OverlapOp op : kOverlapOps) {
        if (!wanted(o, op)) continue;
        for (const double ratio : o.ratios) {
            for (const int pieces : o.pieces) print_row(o, op, ranks, ratio, pieces);
        }
    }
}

bool on_gpus(const Options& o) {
    return o.link == "nccl" || o.link == "copies";
}

/// Whether the operation can be measured on these devices.
bool is_measured(const Options& o, OverlapOp op) {
    return op != OverlapOp::hop && !(on_gpus(o) && is_of_experts(op));
}

/// Makes this rank's device.
std::unique_ptr<Device> make_device(Communicator& world, const Options& o) {
    const std::vector<RankPlacement> placements = find_placements(world);
    std::unique_ptr<Device> device;
    world.agree([&] {
        const auto make = tool::device_factory(on_gpus(o) ? "cuda" : "host", o.link == "copies");
        device = make ? make(placements[static_cast<size_t>(world.rank())]) : make_host_device();
    });
    return device;
}

/// Returns the number of wrong elements.
int64_t measure(Communicator& world, const Options& o) {
    OverlapCase c = o.shape;
    if (!on_gpus(o)) c.modelled = bench::modelled_ratio(o.link);
    const std::unique_ptr<Device> device = make_device(world, o);
    const std::unique_ptr<Transport> opened = device->open_transport(world);
    const std::unique_ptr<TileLink> link =
        link_of_all(world, *device, opened ? *opened : world.transport());
    const bool prints = world.rank() == 0;
    if (prints) {
        std::printf("# by the clock, %d ranks, %s, %s link, %lld x %lld by %lld x %lld, fp32\n",
                    world.size(), device->name().c_str(), o.link.c_str(),
                    static_cast<long long>(c.rows), static_cast<long long>(c.inner),
                    static_cast<long long>(c.inner), static_cast<long long>(c.columns));
        std::printf("%-20s %5s %6s %10s %9s %9s %9s %10s %8s %7s%s\n", "# op", "ratio", "pieces",
                    "bytes", "compute", "link", "blocking", "overlapped", "hidden", "#wrong",
                    o.load_stds.empty() ? "" : "    std  fullest");
    }
    int64_t wrong = 0;
    const auto measure_row = [&] {
        const OverlapTiming t = time_overlap(world, *device, *link, c);
        wrong += t.wrong;
        if (!prints) return;
        std::printf("%-20s %5.2f %6d %10lld %9.1f %9.1f %9.1f %10.1f %7.1f%% %7lld",
                    std::string(to_string(c.op)).c_str(), t.link / t.compute, c.pieces,
                    static_cast<long long>(t.bytes), t.compute * 1e6, t.link * 1e6,
                    t.blocking * 1e6, t.overlapped * 1e6, 100 * t.hidden(),
                    static_cast<long long>(t.wrong));
        if (!o.load_stds.empty()) {
            const ExpertLoads loads = expert_loads(world.size(), c);
            std::printf(" %6.4f %8.3f", loads.std, loads.fullest);
        }
        std::printf("\n");
        std::fflush(stdout);
    };
    const std::vector<double> stds = o.load_stds.empty() ? std::vector<double>{0} : o.load_stds;
    for (const OverlapOp op : kOverlapOps) {
        if (!is_measured(o, op) || !wanted(o, op)) continue;
        if (!o.load_stds.empty() && !is_of_experts(op)) continue;
        for (const double load_std : stds) {
            for (const int pieces : o.pieces) {
                c.op = op;
                c.load_std = load_std;
                c.pieces = pieces;
                measure_row();
            }
        }
    }
    return wrong;
}

int run_by_the_clock(const Options& o) {
    if (!on_gpus(o)) (void)bench::modelled_ratio(o.link);
    if (!o.load_stds.empty() && on_gpus(o)) {
        throw UsageError("--load-std: operations of experts are timed on hosts; use --link real");
    }
    if (o.link == "copies" && o.ranks == 0 && tool::started_by_mpirun()) {
        throw UsageError(
            "--link copies: moves memory between threads of one process; start it without mpirun");
    }
    for (const OverlapOp op : kOverlapOps) {
        if (o.ops.empty() || !wanted(o, op) || is_measured(o, op)) continue;
        throw UsageError("--op " + std::string(to_string(op)) + ": not by the clock" +
                         (on_gpus(o) ? " with --link " + o.link : "") + "; use " +
                         (op == OverlapOp::hop ? "--virtual" : "--link real"));
    }
    return bench::run_team(kProgram, o.ranks,
                           [&](Communicator& world) { return measure(world, o); });
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("How much of a link's time computing hides");
    std::vector<std::string> names;
    for (const OverlapOp op : kOverlapOps) names.emplace_back(to_string(op));
    app.add_flag("--virtual", options.in_virtual_time, "Computed, not measured");
    app.add_option("--ranks", options.ranks, "Members of the team")->check(CLI::Range(2, 1024));
    app.add_option("--link", options.link,
                   "real, modelled:RATIO, or of GPUs: nccl, copies; by the clock")
        ->capture_default_str();
    const auto size = [&](const char* name, int64_t& value, const char* help) {
        app.add_option(name, value, help)->check(CLI::Range(1, 1 << 20))->capture_default_str();
    };
    size("--rows", options.shape.rows, "Rows of all members: by the clock");
    size("--inner", options.shape.inner, "What products sum over");
    size("--columns", options.shape.columns, "Columns of a member's product");
    app.add_option("--rounds", options.shape.rounds, "Rounds, of which the fastest counts")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    app.add_option("--pieces", options.pieces, "Pieces of each member")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024));
    app.add_option("--ratio", options.ratios, "The link's time over computing's")
        ->delimiter(',')
        ->check(CLI::Range(0.001, 1000.0));
    app.add_option("--piece-us", options.piece_us,
                   "What a product costs besides its rows, of 1000 us in all; --virtual")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    app.add_option("--load-std", options.load_stds,
                   "Deviation of the experts' shares of all rows; by the clock, of experts alone")
        ->delimiter(',')
        ->check(CLI::Range(0.0, 1.0));
    app.add_option("--op", options.ops, "Operations; without it all")
        ->delimiter(',')
        ->check(CLI::IsMember(names));
    try {
        app.parse(argc, argv);
        if (!options.in_virtual_time) return run_by_the_clock(options);
        print_virtual(options);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);
        return tool::report_before_launch(
            kProgram, std::string(error.what()) + "; see bench_overlap --help", ExitCode::usage);
    } catch (const Error& error) {
        return tool::report_before_launch(kProgram, error.what(), error.exit_code());
    }
    return tool::finish_output(kProgram, ExitCode::ok);
}
