// SPDX-License-Identifier: Apache-2.0
#include "src/imported/megatron_timers.hpp"

#include "src/support/next_line.hpp"
#include "src/support/parse_number.hpp"
#include "src/support/trimmed_text.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>

namespace vocabpipe::imported {

namespace {

constexpr std::string_view kHeading = "times across ranks (ms):";
constexpr int kMostTimedRanks = 4096;  // one stage each
constexpr double kMostMs = 1e9;

struct Sum {
    double ms = 0;
    int count = 0;
};

}  // namespace

bool is_megatron_log(std::string_view text) {
    const size_t at = text.find(kHeading);
    // "(min, max) time across ranks" has other letters; its times are not of every rank.
    return at != std::string_view::npos;
}

std::string megatron_pass_times(std::string_view text, const std::string& name, int microbatches) {
    std::map<int, Sum> forward, backward;  // by rank
    std::map<int, Sum>* timer = nullptr;   // that the next lines are of
    int number = 0;
    for (size_t at = 0; at < text.size();) {
        const std::string_view line = trimmed(next_line(text, at));
        ++number;
        if (line.starts_with("rank ") && timer != nullptr) {
            const size_t colon = std::min(line.find(':'), line.size());
            const auto rank = parse_number<int>(trimmed(line.substr(5, colon - 5)));
            const auto ms = parse_number<double>(
                colon < line.size() ? trimmed(line.substr(colon + 1)) : std::string_view());
            if (!rank || *rank < 0 || *rank >= kMostTimedRanks || !ms ||
                !(*ms > 0 && *ms <= kMostMs)) {
                throw InputFileError(name + ":" + std::to_string(number) + ": \"" +
                                     std::string(line.substr(0, 60)) +
                                     "\": must be \"rank R: MILLISECONDS\"; use the log as "
                                     "Megatron-LM printed it");
            }
            Sum& sum = (*timer)[*rank];
            sum.ms += *ms;
            ++sum.count;
        } else if (line.ends_with(':')) {
            timer = line == "forward-compute:"    ? &forward
                    : line == "backward-compute:" ? &backward
                                                  : nullptr;
        } else {
            timer = nullptr;
        }
    }
    if (forward.empty()) {
        throw InputFileError(name +
                             ": has no forward-compute of ranks; log with "
                             "--timing-log-level 2 --timing-log-option all");
    }
    std::string rows = "rank,op,stage,ns\n";
    int next = 0;
    for (const auto& [of_rank, sum] : forward) {
        const int rank = of_rank;  // lambdas capture no bindings in clang
        const auto back = backward.find(rank);
        if (rank != next++ || back == backward.end()) {
            throw InputFileError(name + ": rank " + std::to_string(next - 1) +
                                 " lacks forward-compute or backward-compute; log all ranks");
        }
        const auto row = [&](const char* op, const Sum& of) {
            const double ns = of.ms * 1e6 / of.count / microbatches;
            rows += std::to_string(rank) + "," + op + "," + std::to_string(rank) + "," +
                    std::to_string(std::max<int64_t>(1, std::llround(ns))) + "\n";
        };
        row("F", sum);
        row("B", back->second);
    }
    return rows;
}

}  // namespace vocabpipe::imported
