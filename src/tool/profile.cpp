// SPDX-License-Identifier: Apache-2.0
// vocabpipe profile: measures what passes and messages take on this machine, under mpirun or on
// threads, and writes the profile file.
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/tool/commands.hpp"
#include "src/tool/flag_parser.hpp"
#include "src/tool/launch.hpp"
#include "src/tool/model_flags.hpp"
#include "src/tool/run_signals.hpp"
#include "src/tool/text.hpp"
#include "src/train/measure/profile_machine.hpp"
#include "vocabpipe/error.hpp"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace vocabpipe::tool {

namespace {

struct Options {
    TrainOptions train;
    Launch launch;
    std::string output;
    std::optional<ModelFlags> model;
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

void run(Options& options) {
    options.model->resolve();
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

void add_profile(CLI::App& app, std::string command) {
    CLI::App* profile = app.add_subcommand(
        "profile",
        "Measure passes and links of this machine\n"
        "  mpirun -np 2 vocabpipe profile --output FILE.json --num-layers 8 ...");
    const auto options = std::make_shared<Options>();
    options->train.command = std::move(command);
    options->train.train_iters = 10;  // medians of ten steps: a second of a small model
    options->model.emplace(*profile, options->train);
    const FlagGroup own{.title = "Measurement",
                        .flags = {{.names = "--steps",
                                   .value = &options->train.train_iters,
                                   .help = "Measured, each way",
                                   .unit = "STEPS",
                                   .range = at_least(1)},
                                  {.names = "--output",
                                   .value = &options->output,
                                   .help = "Profile to write (JSON)",
                                   .unit = "FILE"}}};
    add_flags(*profile, {launch_flags(options->launch), own});
    profile->get_option("--output")->required();
    profile->callback([options, profile, own] {
        check_launch(*profile, options->launch, options->train);
        for (std::string& line : compared_flags({own})) {
            options->train.program_flags.push_back(std::move(line));
        }
        run(*options);
    });
}

}  // namespace vocabpipe::tool
