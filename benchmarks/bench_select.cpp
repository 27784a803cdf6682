// SPDX-License-Identifier: Apache-2.0
// Data selection: the quality of a selection in parts, and its cost.
//
//     bench_select scores  --graph FILE --utility FILE [--fraction 0.1 ...] [--alpha 9 --beta 1]
//     bench_select scaling --folder DIR [--nodes 100000 1000000] [--ranks 2] [--memory 2GiB]
//
// scores   100 (f - lowest) / (f of greedy in one part - lowest) by parts and rounds, with a fixed
// or
//          adaptive number of parts; "lowest" is the lowest f of the table
// scaling  a graph of 16 neighbours per sample (--edges 8) is written to DIR (8 bytes each), read
// once
//          (columns "read"), and 10 % of its samples are chosen. Each size runs in a process of its
//          own, for its peak memory. Ranks are threads.
#include "src/select/files/graph_file.hpp"
#include "src/select/files/sample_input.hpp"
#include "src/select/selection.hpp"
#include "src/support/flag.hpp"
#include "vocabpipe/error.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace vocabpipe;
using Clock = std::chrono::steady_clock;

struct Options {
    std::string graph, utility, folder, memory = "0";
    std::vector<double> fractions{0.1, 0.5};
    std::vector<int64_t> nodes{100'000, 1'000'000};
    std::string bounding = "exact";
    PairwiseObjective objective;
    int ranks = 2;
    int64_t parts = 16, rounds = 8, edges = 8;
};

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// ---------------------------------------------------------------- scores

int64_t objective_of_run(Communicator& world, const Options& o, const GraphFile& graph,
                         const ReadUtilities& utilities, int64_t k, const RoundOptions& rounds) {
    SelectContext context{.world = world, .graph = graph, .objective = o.objective, .seed = 1};
    const GraphSizes sizes = GraphSizes::of(context);
    const BoundingRule off{.kind = BoundingRule::Kind::off};
    const MemoryPlan plan =
        plan_memory(sizes, world.size(), rounds.parts, off, context.batch_bytes);
    Selection selection(context, sizes, plan, utilities,
                        {.k = k, .bounding = off, .rounds = rounds, .certificate_steps = 0},
                        nullptr);
    selection.run();
    return selection.objective();
}

void print_scores(Communicator& world, const Options& o) {
    const GraphFile graph(o.graph);
    const std::unique_ptr<UtilityInput> input = open_utility(o.utility);
    const ReadUtilities utilities = [&](int64_t first, std::span<int32_t> to) {
        input->read(first, to);
    };
    constexpr std::array<int64_t, 6> kCounts{1, 2, 4, 8, 16, 32};  // of parts and of rounds
    for (const double fraction : o.fractions) {
        const auto k = std::llround(fraction * static_cast<double>(graph.nodes()));
        std::map<std::array<int64_t, 3>, int64_t> found;  // adaptive, parts, rounds
        for (const bool adaptive : {false, true}) {
            for (const int64_t parts : kCounts) {
                for (const int64_t rounds : kCounts) {
                    found[{adaptive, parts, rounds}] =
                        objective_of_run(world, o, graph, utilities, k,
                                         {.parts = parts, .rounds = rounds, .adaptive = adaptive});
                }
            }
        }
        const int64_t best = found.at({0, 1, 1});
        int64_t lowest = best;
        for (const auto& [key, f] : found) lowest = std::min(lowest, f);
        std::printf(
            "\n%lld of %lld samples, alpha %lld, beta %lld: greedy %lld, lowest %lld (%.4f)\n",
            static_cast<long long>(k), static_cast<long long>(graph.nodes()),
            static_cast<long long>(o.objective.alpha), static_cast<long long>(o.objective.beta),
            static_cast<long long>(best), static_cast<long long>(lowest),
            static_cast<double>(lowest) / static_cast<double>(best));
        for (const bool adaptive : {false, true}) {
            std::printf("\n| %s | 1 round | 2 | 4 | 8 | 16 | 32 |\n|---|---|---|---|---|---|---|\n",
                        adaptive ? "adaptive" : "parts");
            for (const int64_t parts : kCounts) {
                std::printf("| %lld |", static_cast<long long>(parts));
                for (const int64_t rounds : kCounts) {
                    const auto above =
                        static_cast<double>(found.at({adaptive, parts, rounds}) - lowest);
                    std::printf(" %.0f |", 100 * above / static_cast<double>(best - lowest));
                }
                std::printf("\n");
            }
        }
    }
}

// ---------------------------------------------------------------- scaling

int32_t utility_of(int64_t v) {
    return static_cast<int32_t>(hash_of(5, 1, static_cast<uint64_t>(v)) >> 44);  // below 2^20
}

/// Half of the neighbours are near, half far: those of v are v +- the first `edges` of these.
std::vector<int64_t> offsets_of(int64_t n, int64_t edges) {
    std::vector<int64_t> offsets{1,         2,         7,         31,  n / 11 + 1,
                                 n / 7 + 1, n / 5 + 1, n / 3 + 1, 127, n / 13 + 1};
    offsets.resize(static_cast<size_t>(edges));
    return offsets;
}

/// Writes rank `world.rank()`'s part of the graph of n samples.
void write_graph(Communicator& world, const std::string& path, int64_t n, int64_t edges) {
    const int64_t degree = 2 * edges;
    GraphOutput output(world, path, {.data = "offsets", .samples = n}, n * degree);
    const Ownership owners(n, world.size());
    const auto offsets = offsets_of(n, edges);
    std::vector<int64_t> row(static_cast<size_t>(degree));
    std::vector<int64_t> begins;
    std::vector<int64_t> neighbours;
    std::vector<int32_t> similarities;
    constexpr int64_t kRows = 1 << 14;
    for (int64_t first = owners.begin(world.rank()); first < owners.end(world.rank());
         first += kRows) {
        const int64_t last = std::min(first + kRows, owners.end(world.rank()));
        begins.clear();
        neighbours.clear();
        similarities.clear();
        for (int64_t v = first; v < last; ++v) {
            for (size_t i = 0; i < offsets.size(); ++i) {
                row[2 * i] = (v + offsets[i]) % n;
                row[2 * i + 1] = (v + n - offsets[i]) % n;
            }
            std::sort(row.begin(), row.end());
            begins.push_back(v * degree);
            for (const int64_t w : row) {
                neighbours.push_back(w);
                // Below 1/2, so that some samples are decided by their utility.
                similarities.push_back(
                    static_cast<int32_t>(hash_of(6, static_cast<uint64_t>(std::min(v, w)),
                                                 static_cast<uint64_t>(std::max(v, w))) >>
                                         45));
            }
        }
        if (last == n) begins.push_back(n * degree);
        output.write_row_begin(first, begins);
        output.write_entries(first * degree, neighbours, similarities);
    }
    output.publish();
}

/// Seconds to read this rank's share of the file once, by blocks as the selection does.
void read_once(Communicator& world, const std::string& path) {
    const InputFile file(path);
    const auto ranks = static_cast<uint64_t>(world.size());
    const auto rank = static_cast<uint64_t>(world.rank());
    std::vector<std::byte> block(uint64_t{1} << 20);
    const uint64_t end = file.size() * (rank + 1) / ranks;
    for (uint64_t at = file.size() * rank / ranks; at < end; at += block.size()) {
        file.read(at, std::span(block).first(std::min<uint64_t>(block.size(), end - at)));
    }
}

/// Bytes that this process has read and written, whether or not from the page cache.
struct FileBytes {
    int64_t read = 0, written = 0;

    static FileBytes now() {
        FileBytes bytes;
        std::ifstream file("/proc/self/io");
        std::string name;
        for (int64_t value = 0; file >> name >> value;) {
            if (name == "rchar:") bytes.read = value;
            if (name == "wchar:") bytes.written = value;
        }
        return bytes;
    }
};

/// Prints a line of the table and returns the seconds for the fit.
double run_size(const Options& o, int64_t n) {
    const std::string path =
        o.folder + "/offsets-" + std::to_string(n) + "-" + std::to_string(o.edges) + ".safetensors";
    double total = 0;
    World::threads(o.ranks).run([&](Communicator& world) {
        if (!std::filesystem::exists(path)) {
            world.barrier();
            write_graph(world, path, n, o.edges);
        }
        world.barrier();
        read_once(world, path);  // fills the page cache as far as possible
        world.barrier();
        const auto read_begin = Clock::now();
        read_once(world, path);
        world.barrier();
        const double read = seconds_since(read_begin);

        const GraphFile graph(path);
        SelectContext context{.world = world,
                              .graph = graph,
                              .objective = o.objective,
                              .seed = 1,
                              .memory = MemoryBudget(bytes_from(o.memory).value_or(0))};
        const ReadUtilities utilities = [](int64_t first, std::span<int32_t> to) {
            for (size_t i = 0; i < to.size(); ++i) {
                to[i] = utility_of(first + static_cast<int64_t>(i));
            }
        };
        const GraphSizes sizes = GraphSizes::of(context);
        const SelectionOptions options{
            .k = n / 10,
            .bounding = BoundingRule::from(o.bounding, "--bounding"),
            .rounds = {.parts = o.parts, .rounds = o.rounds, .adaptive = true}};
        context.blocks = plan_blocks(sizes, context.memory.limit(), world.size(), o.parts,
                                     options.bounding, context.batch_bytes);
        context.blocks.folder = o.folder;
        const MemoryPlan plan = plan_memory(sizes, world.size(), o.parts, options.bounding,
                                            context.batch_bytes, context.blocks);
        if (context.memory.limit() != 0) {
            check_memory_plan(plan, context.memory.limit(), sizes, world.size(), o.parts,
                              options.bounding, context.batch_bytes);
        }
        const auto begin = Clock::now();
        const FileBytes before = FileBytes::now();
        double bounding = 0, chosen = 0;
        Selection selection(context, sizes, plan, utilities, options, nullptr);
        selection.run([&](const char* phase) {
            if (std::string_view(phase) == "bounding") bounding = seconds_since(begin);
            if (std::string_view(phase) != "certificate") chosen = seconds_since(begin);
        });
        if (world.rank() != 0) return;
        total = seconds_since(begin);
        const FileBytes after = FileBytes::now();
        const BoundingReport& bounded = selection.progress().bounding;
        const MessageCount& messages = selection.progress().bounding_messages;
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        const auto steps = static_cast<double>(std::max<size_t>(bounded.steps.size(), 1));
        const auto entries = static_cast<double>(graph.entries());
        std::printf(
            "| %.0e | %.1f | %.0f | %.2f | %.0f | %.1f | %.1f %% | %.0fx | %.1f | %.1f | "
            "%.2f %% | %.0f | %.0f | %.1f | %.1f |\n",
            static_cast<double>(n), 1e3 * read, entries / read / 1e6, bounding, steps,
            bounding / steps / read,
            100.0 * static_cast<double>(bounded.selected + bounded.discarded) /
                static_cast<double>(n),
            static_cast<double>(bounded.rejoin_tuples) /
                static_cast<double>(std::max<int64_t>(messages.messages, 1)),
            chosen - bounding, total - chosen,
            100.0 * static_cast<double>(selection.objective()) /
                static_cast<double>(selection.certificate()->bound.value_or(INT64_MAX)),
            static_cast<double>(context.memory.peak()) * world.size() / static_cast<double>(n),
            static_cast<double>(usage.ru_maxrss) / 1024,
            static_cast<double>(after.read - before.read) * 1e-9,
            static_cast<double>(after.written - before.written) * 1e-9);
        std::fflush(stdout);
    });
    return total;
}

/// Runs in a process of its own; returns its seconds.
double run_apart(const Options& o, int64_t n) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw Error(ExitCode::failed, "bench_select: no pipe");
    const pid_t child = fork();
    if (child == 0) {
        int code = 0;
        try {
            const double seconds = run_size(o, n);
            if (write(ends[1], &seconds, sizeof seconds) != sizeof seconds) code = 1;
        } catch (const Error& error) {
            std::fprintf(stderr, "bench_select: error: %s\n", error.what());
            code = static_cast<int>(error.exit_code());
        }
        _exit(code);
    }
    int status = 0;
    double seconds = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0 ||
        read(ends[0], &seconds, sizeof seconds) != sizeof seconds) {
        throw Error(ExitCode::failed, "bench_select: " + std::to_string(n) + " samples failed");
    }
    close(ends[0]);
    close(ends[1]);
    return seconds;
}

void print_scaling(const Options& o) {
    std::printf(
        "%d ranks (threads), 10 %% chosen, bounding %s, %lld parts adapted, %lld rounds\n\n",
        o.ranks, o.bounding.c_str(), static_cast<long long>(o.parts),
        static_cast<long long>(o.rounds));
    std::printf(
        "| n | read (ms) | M entries/s | bounding (s) | steps | step / read | decided | "
        "re-join / messages | greedy (s) | certificate (s) | of the bound | "
        "bytes per sample | largest memory (MiB) | read (GB) | written (GB) |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    std::fflush(stdout);
    std::vector<std::pair<double, double>> points;  // logarithms of n and seconds
    for (const int64_t n : o.nodes) {
        points.emplace_back(std::log(static_cast<double>(n)), std::log(run_apart(o, n)));
    }
    if (points.size() < 2) return;
    double x = 0, y = 0, xx = 0, xy = 0;
    for (const auto& [a, b] : points) {
        x += a;
        y += b;
        xx += a * a;
        xy += a * b;
    }
    const auto count = static_cast<double>(points.size());
    std::printf("\nseconds grow as n^%.2f (least squares over %zu sizes)\n",
                (count * xy - x * y) / (count * xx - x * x), points.size());
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    CLI::App app("Data selection: how good it is when it is cut into parts, and what it costs");
    app.require_subcommand(1);
    CLI::App* scores = app.add_subcommand("scores", "Objective over parts and rounds");
    scores->add_option("--graph", o.graph, "Graph of vocabpipe select knn")->required();
    scores->add_option("--utility", o.utility, "Scores of vocabpipe select score")->required();
    scores->add_option("--fraction", o.fractions, "What is chosen, of 1");
    CLI::App* scaling = app.add_subcommand("scaling", "Time and memory over the number of samples");
    scaling->add_option("--folder", o.folder, "Where graphs are written and kept")->required();
    scaling->add_option("--nodes", o.nodes, "Samples");
    scaling->add_option("--ranks", o.ranks, "Threads");
    scaling->add_option("--memory", o.memory, "Bytes per rank, such as 2GiB");
    scaling->add_option("--bounding", o.bounding, "off, exact, bernoulli:Q, quota:Q or weighted:Q");
    scaling->add_option("--partitions", o.parts, "Parts of the first round");
    scaling
        ->add_option("--edges", o.edges, "Edges of each sample: twice as many row entries per row")
        ->check(CLI::Range(1, 10));
    scaling->add_option("--rounds", o.rounds, "Rounds");
    for (CLI::App* command : {scores, scaling}) {
        command->add_option("--alpha", o.objective.alpha, "Weight of utilities");
        command->add_option("--beta", o.objective.beta, "Weight of similarities");
    }
    CLI11_PARSE(app, argc, argv);
    try {
        if (scores->parsed()) {
            World::threads(1).run([&](Communicator& world) { print_scores(world, o); });
        } else {
            print_scaling(o);
        }
    } catch (const Error& error) {
        std::fprintf(stderr, "bench_select: error: %s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
    return 0;
}
