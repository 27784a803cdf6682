// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/team_bench.hpp"

#include "src/support/parse_number.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/launchers.hpp"
#include "src/tool/launch/run_signals.hpp"
#include "vocabpipe/error.hpp"

#include <atomic>
#include <optional>
#include <string_view>

namespace vocabpipe::bench {

double modelled_ratio(const std::string& link) {
    constexpr std::string_view kModelled = "modelled:";
    if (link == "real") return 0;
    const auto ratio = link.starts_with(kModelled)
                           ? parse_number<double>(std::string_view(link).substr(kModelled.size()))
                           : std::nullopt;
    if (ratio && *ratio > 0 && *ratio <= 1000) return *ratio;
    throw UsageError("--link " + link + ": must be real or modelled:RATIO, RATIO from 0 to 1000");
}

int run_team(const char* program, int ranks, const std::function<int64_t(Communicator&)>& measure) {
    const bool threads = ranks > 0 || !tool::started_by_mpirun();
    const tool::Launch launch{.transport = threads ? "threads" : "mpi",
                              .ranks = ranks > 0 ? ranks : 2};
    install_run_signals();
    std::atomic<int64_t> wrong{0};
    const int code = tool::run_ranks(program, launch, [&](Communicator& world) {
        if (world.size() < 2) {
            throw UsageError("one rank has nobody to talk to; give --ranks P or mpirun -np P");
        }
        wrong = measure(world);
    });
    return code == 0 && wrong > 0 ? static_cast<int>(ExitCode::failed) : code;
}

}  // namespace vocabpipe::bench
