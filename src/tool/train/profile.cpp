// SPDX-License-Identifier: Apache-2.0
// vocabpipe profile: measures the durations of passes and messages on this machine, under mpirun or
// on threads, and writes a profile; or the durations of products that overlap their messages.
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/run_signals.hpp"
#include "src/tool/model/model_flags.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/phase_progress.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/options/choose_schedule.hpp"
#include "src/train/profile/profile_machine.hpp"
#include "src/train/profile/profile_overlap.hpp"
#include "vocabpipe/error.hpp"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::tool {

namespace {

constexpr double kMostMeasuredSteps = 100'000;  // their times are kept for the medians

struct ProfileArguments {
    TrainOptions train;
    Launch launch;
    std::string output;   // --output; empty: no profile
    std::string overlap;  // --overlap; empty: no table
    ModelFlags model{train};

    /// Flags that train_gpt does not have.
    [[nodiscard]] FlagGroup own_flags() {
        return {
            .title = "Measurement",
            .flags = {{.names = "--steps",
                       .value = &train.train_iters,
                       .help = "Steps to measure with whole backwards, and again with split ones; "
                               "rounds of --overlap",
                       .unit = "STEPS",
                       .range = between(1, kMostMeasuredSteps)},
                      {.names = "--output",
                       .value = &output,
                       .help = "File for the profile (JSON)",
                       .unit = "FILE"},
                      {.names = "--overlap",
                       .value = &overlap,
                       .help = "File for the table of pieces by which products of a team of all "
                               "ranks overlap their messages (JSON)",
                       .unit = "FILE"}}};
    }
};

void print(const Profile& profile) {
    const auto ms = [](const TableCosts::OpCosts& costs, Op op) {
        return static_cast<double>(costs[static_cast<size_t>(op)]) * 1e-6;
    };
    const bool recomputes = recomputed_in(profile) != Recompute::none;
    std::printf("%5s %4s %6s %9s %9s %9s %9s%s\n", "stage", "rank", "layers", "F ms", "B ms",
                "I ms", "W ms", recomputes ? "      R ms" : "");
    for (size_t s = 0; s < profile.costs.stage_ns.size(); ++s) {
        const TableCosts::OpCosts& costs = profile.costs.stage_ns[s];
        std::printf("%5zu %4d %6d %9.3f %9.3f %9.3f %9.3f", s, profile.rank_of_stage[s],
                    profile.model.layers_per_stage[s], ms(costs, Op::F), ms(costs, Op::B),
                    ms(costs, Op::I), ms(costs, Op::W));
        if (recomputes) std::printf(" %9.3f", ms(costs, Op::R));
        std::printf("\n");
    }
    std::printf("%5s %4s %6s %9s %9s %9s %9s %9s\n", "", "rank", "rows", "E ms", "G ms", "S ms",
                "T ms", "Update ms");
    for (size_t r = 0; r < profile.costs.rank_ns.size(); ++r) {
        const TableCosts::OpCosts& costs = profile.costs.rank_ns[r];
        std::printf("%5s %4zu %6lld %9.3f %9.3f %9.3f %9.3f %9.3f\n", "", r,
                    static_cast<long long>(profile.output.rows(static_cast<int>(r))),
                    ms(costs, Op::E), ms(costs, Op::G), ms(costs, Op::S), ms(costs, Op::T),
                    ms(costs, Op::Update));
    }
    for (const LinkSample& link : profile.links) {
        std::printf("%-10s %2d ranks %10lld bytes %10.1f us\n",
                    std::string(to_string(link.what)).c_str(), link.ranks,
                    static_cast<long long>(link.bytes), static_cast<double>(link.ns) * 1e-3);
    }
}

void print(const OverlapTable& table) {
    std::printf("%-19s %5s %5s %6s %8s %8s %8s %2s %8s\n", "us:", "rows", "inner", "cols",
                "compute", "link", "blocking", "K", "overlap");
    const auto us = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
    for (const MeasuredOverlap& m : table.shapes) {
        for (const MeasuredOverlap::Candidate& one : m.candidates) {
            if (one.pieces != m.pieces) continue;
            std::printf("%-19s %5lld %5lld %6lld %8.1f %8.1f %8.1f %2d %8.1f\n",
                        std::string(to_string(m.op)).c_str(), static_cast<long long>(m.rows),
                        static_cast<long long>(m.inner), static_cast<long long>(m.columns),
                        us(m.compute_ns), us(m.link_ns), us(m.blocking_ns), m.pieces,
                        us(one.overlapped_ns));
        }
    }
}

void measure(ProfileArguments& options, const GivenFlags& given) {
    if (options.output.empty() && options.overlap.empty()) {
        throw UsageError("--output: is required, or --overlap; give the file to write");
    }
    check_launch(options.launch, options.train);
    options.model.resolve(given);
    options.train.date = utc_now();
    install_run_signals(options.launch.exit_signal);
    options.train.terminated = ending_signal;
    const int code = run_ranks("vocabpipe", options.launch, [&](Communicator& communicator) {
        const bool writes = communicator.rank() == 0;
        communicator.agree([&] {
            if (!writes) return;
            OutputCheck check({options.train.gpu.product_choices_file, options.train.schedule});
            const auto add = [&](const char* flag, const std::string& path,
                                 const OutputKind& kind) {
                if (path.empty()) return;
                check.add(flag, path, kind);
                const OutputFile probe(path);  // fails before the work rather than after it
            };
            add("--output", options.output, profile_output());
            add("--overlap", options.overlap, overlap_table_output());
        });
        const TrainOptions train = with_chosen_schedule(options.train, communicator.size());
        if (!options.output.empty()) {
            PhaseProgress progress(writes);
            const Profile profile = profile_machine(
                communicator, train, [&](const char* phase, int64_t done, int64_t total) {
                    progress.show(phase, done, total);
                });
            progress.clear();
            communicator.agree([&] {
                if (writes) write_profile(options.output, profile);
            });
            if (writes) print(profile);
        }
        if (options.overlap.empty()) return;
        std::optional<LongWork> work;
        if (writes) work.emplace("measuring overlap");
        const OverlapTable table = profile_overlap(communicator, train);
        work.reset();
        communicator.agree([&] {
            if (writes) write_overlap_table(options.overlap, table);
        });
        if (writes) print(table);
    });
    if (code != 0) throw Reported{code};
}

}  // namespace

Command profile_command(const std::string& command_line) {
    const auto o = std::make_shared<ProfileArguments>();
    o->train.command = command_line;
    o->train.train_iters = 10;  // medians of ten steps: a second with a small model
    std::vector<FlagGroup> flags = o->model.flags();
    flags.push_back(launch_flags(o->launch));
    flags.push_back(o->own_flags());
    return comparing_flags(
        {.name = "profile",
         .description = "Measure the passes and links of this machine\n"
                        "  mpirun -np 2 vocabpipe profile --output FILE.json --num-layers 8 ...\n"
                        "  mpirun -np 2 vocabpipe profile --overlap FILE.json --num-layers 8 ...",
         .flags = std::move(flags),
         .run = [o](const GivenFlags& given) { measure(*o, given); }},
        o->launch);
}

}  // namespace vocabpipe::tool
