// SPDX-License-Identifier: Apache-2.0
// Planning from code: the schedule and vocabulary mode that train a model fastest on given GPUs,
// the plans that fit into their memory, and the winner's step. Needs no GPU.
//
//   planning [MODEL [DEVICE [GPUS]]]
#include <cstdio>
#include <cstdlib>

#include "vocabpipe/error.hpp"
#include "vocabpipe/plan.hpp"

using namespace vocabpipe;

int main(int argc, char** argv) try {
    PlanOptions options{.model = load_model(argc > 1 ? argv[1] : "llama-3-8b"),
                        .device = load_device(argc > 2 ? argv[2] : "h100"),
                        .gpus = argc > 3 ? std::atoi(argv[3]) : 8,
                        .seq_length = 4096,
                        .global_batch_size = 32,
                        .schedules = {"1f1b", "interleaved", "zb-h1", "v-half"},
                        .sensitivity_rows = 0};

    // For the smallest memory, asks again with more recomputation until something fits.
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        options.recompute = {recompute};
        const Plan plan = make_plan(options);
        std::printf("%s on %d %s, recompute %s\n", options.model.name.c_str(), options.gpus,
                    options.device.name.c_str(), std::string(to_string(recompute)).c_str());
        std::printf("  %-34s %9s %6s %7s %10s\n", "candidate", "step", "MFU", "bubble",
                    "worst rank");
        for (size_t i = 0; i < plan.rows.size() && i < 5; ++i) {
            const PlanRow& row = plan.rows[i];
            std::printf("  %-34s %6.0f ms %4.1f %% %5.1f %% %6.1f GiB%s\n",
                        to_string(row.candidate).c_str(), static_cast<double>(row.step_ns) * 1e-6,
                        100 * row.mfu, 100 * row.bubble,
                        static_cast<double>(row.worst.total()) / (1 << 30),
                        row.fits() ? "" : "  does not fit");
        }
        if (plan.rows.front().fits()) {
            std::printf("best: %s\n", to_string(plan.rows.front().candidate).c_str());
            return 0;
        }
    }
    std::printf("nothing fits: take more GPUs\n");
    return 1;
} catch (const Error& error) {
    std::fprintf(stderr, "planning: error: %s\n", error.what());
    return static_cast<int>(error.exit_code());
}
