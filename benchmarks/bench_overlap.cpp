// SPDX-License-Identifier: Apache-2.0
// How much of a link's time computing hides, in virtual time: no clock, the same on every machine.
//
//     bench_overlap --virtual [--ranks 8 --pieces 1,4,8 --ratio 0.5,1,2 --op all_gather_gemm,...]
//
// ratio: the link's time over computing's. Columns: bytes that the slowest rank receives; compute,
// link, blocking, overlapped in us; hidden = (compute + link - overlapped) / link of the slowest
// rank; natural: the same with products in natural order, as the mean over ranks and of the slowest
// (all-gather and reduce-scatter only).
#include "src/tool/launch.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/overlap.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace vocabpipe;

constexpr const char* kProgram = "bench_overlap";
constexpr int64_t kComputeNs = 1'000'000;
constexpr int64_t kRowBytes = 2048;

struct Options {
    bool in_virtual_time = false;
    int ranks = 8;
    std::vector<int> pieces{1, 4, 8};
    std::vector<double> ratios{0.5, 1, 2};
    std::vector<std::string> ops;
};

void print_row(OverlapOp op, int ranks, double ratio, int pieces) {
    const bool is_stream = op == OverlapOp::stream_in || op == OverlapOp::hop;
    const int members = is_stream ? 1 : ranks;
    const int64_t rows = int64_t{64} * members * pieces;  // pieces of equal size
    const TileMap map = TileMap::even(rows, members, pieces);
    const int64_t bytes = kRowBytes * (members == 1 ? rows : rows / members * (members - 1));
    const Link link{.bytes_per_ns = static_cast<double>(bytes) / (ratio * kComputeNs)};
    const OverlapTimes times = overlap(op, map, kComputeNs, link, {.row_bytes = kRowBytes});
    const auto us = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
    std::printf("%-20s %5.2f %6d %10lld %9.1f %9.1f %9.1f %10.1f %7.1f%%",
                std::string(to_string(op)).c_str(), ratio, map.pieces(0),
                static_cast<long long>(bytes), us(times.compute_ns), us(times.link_ns),
                us(times.blocking_ns), us(times.overlapped_ns), 100 * times.hidden());
    if (is_stream) {
        std::printf("\n");
        return;
    }
    double mean = 0;
    double least = 1;
    for (const OverlapTimes& rank : overlap_of_ranks(
             op, map, kComputeNs, link, {.row_bytes = kRowBytes, .order = ComputeOrder::natural})) {
        mean += rank.hidden() / ranks;
        least = std::min(least, rank.hidden());
    }
    std::printf(" %7.1f%% %7.1f%%\n", 100 * mean, 100 * least);
}

void run(const Options& o) {
    if (!o.in_virtual_time) {
        throw UsageError("bench_overlap measures in virtual time only; give --virtual");
    }
    std::printf("# virtual time, %d ranks\n", o.ranks);
    std::printf("%-20s %5s %6s %10s %9s %9s %9s %10s %8s %8s %8s\n", "# op", "ratio", "pieces",
                "bytes", "compute", "link", "blocking", "overlapped", "hidden", "natural",
                "slowest");
    for (const OverlapOp op : kOverlapOps) {
        const bool wanted =
            o.ops.empty() || std::find(o.ops.begin(), o.ops.end(), to_string(op)) != o.ops.end();
        if (!wanted) continue;
        for (const double ratio : o.ratios) {
            for (const int pieces : o.pieces) print_row(op, o.ranks, ratio, pieces);
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("How much of a link's time computing hides");
    std::vector<std::string> names;
    for (const OverlapOp op : kOverlapOps) names.emplace_back(to_string(op));
    app.add_flag("--virtual", options.in_virtual_time, "Computed, not measured; the only mode");
    app.add_option("--ranks", options.ranks, "Members of the team")
        ->check(CLI::Range(2, 1024))
        ->capture_default_str();
    app.add_option("--pieces", options.pieces, "Pieces of each member")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024));
    app.add_option("--ratio", options.ratios, "The link's time over computing's")
        ->delimiter(',')
        ->check(CLI::Range(0.001, 1000.0));
    app.add_option("--op", options.ops, "Operations; without it all")
        ->delimiter(',')
        ->check(CLI::IsMember(names));
    try {
        app.parse(argc, argv);
        run(options);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);
        return tool::report_before_launch(
            kProgram, std::string(error.what()) + "; see bench_overlap --help", ExitCode::usage);
    } catch (const Error& error) {
        return tool::report_before_launch(kProgram, error.what(), error.exit_code());
    }
    return tool::finish_output(kProgram, ExitCode::ok);
}
