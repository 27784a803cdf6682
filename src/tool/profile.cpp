// SPDX-License-Identifier: Apache-2.0
// vocabpipe profile: measures what passes and messages take on this machine, under mpirun or on
// threads, and writes the profile file.
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/tool/commands.hpp"
#include "src/tool/launch.hpp"
#include "src/tool/model_flags.hpp"
#include "src/tool/run_signals.hpp"
#include "src/tool/text.hpp"
#include "src/train/measure/profile_machine.hpp"
#include "vocabpipe/error.hpp"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::tool {

namespace {

struct ProfileArguments {
    TrainOptions train;
    Launch launch;
    std::string output;
    ModelFlags model{train};

    /// What train_gpt does not have.
    [[nodiscard]] FlagGroup own_flags() {
        return {
            .title = "Measurement",
            .flags = {{.names = "--steps",
                       .value = &train.train_iters,
                       .help = "Steps to measure with whole backwards, and again with split ones",
                       .unit = "STEPS",
                       .range = at_least(1)},
                      {.names = "--output",
                       .value = &output,
                       .help = "File for the profile (JSON)",
                       .unit = "FILE",
                       .required = true}}};
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

void measure(ProfileArguments& options, const GivenFlags& given) {
    check_launch(options.launch, options.train);
    for (std::string& line : compared_flags({options.own_flags()})) {
        options.train.program_flags.push_back(std::move(line));
    }
    options.model.resolve(given);
    options.train.date = utc_now();
    install_run_signals();
    options.train.terminated = ending_signal;
    const int code = run_ranks("vocabpipe", options.launch, [&](Communicator& communicator) {
        const bool writes = communicator.rank() == 0;
        communicator.agree([&] {
            if (!writes) return;
            OutputCheck({options.train.products.choices_file, options.train.schedule})
                .add("--output", options.output, profile_output());
            const OutputFile probe(options.output);  // rather now than afterwards
        });
        const Profile profile = profile_machine(communicator, options.train);
        communicator.agree([&] {
            if (writes) write_profile(options.output, profile);
        });
        if (writes) print(profile);
    });
    if (code != 0) throw Reported{code};
}

}  // namespace

Command profile_command(const std::string& command_line) {
    const auto o = std::make_shared<ProfileArguments>();
    o->train.command = command_line;
    o->train.train_iters = 10;  // medians of ten steps: a second of a small model
    std::vector<FlagGroup> flags = o->model.flags();
    flags.push_back(launch_flags(o->launch));
    flags.push_back(o->own_flags());
    return {.name = "profile",
            .description =
                "Measure the passes and links of this machine\n"
                "  mpirun -np 2 vocabpipe profile --output FILE.json --num-layers 8 ...",
            .flags = std::move(flags),
            .run = [o](const GivenFlags& given) { measure(*o, given); }};
}

}  // namespace vocabpipe::tool
