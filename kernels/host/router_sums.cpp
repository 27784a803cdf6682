// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>

#include "kernels/expert_checks.hpp"
#include "kernels/host/operators.hpp"

namespace vocabpipe::kernels::host {

void sum_routing(Context&, ConstTensor load, ConstTensor score_sums, ConstTensor log_z,
                 int64_t top_k, std::span<double> sums, bool accumulate) {
    require_sum_routing(load, score_sums, log_z, sums);
    const auto tokens = static_cast<double>(log_z.rows);
    const auto experts = static_cast<double>(load.cols);
    const auto* const loads = load.as<float>();
    double balance = 0, z = 0;
    for (int64_t e = 0; e < load.cols; ++e) {
        balance += static_cast<double>(loads[e]) * static_cast<double>(score_sums.as<float>()[e]);
    }
    for (int64_t n = 0; n < log_z.rows; ++n) {
        const double value = log_z.as<float>()[n * log_z.stride];
        z += value * value;
    }
    const auto add = [&](size_t at, double value) {
        sums[at] = accumulate ? sums[at] + value : value;
    };
    add(kRoutedMicrobatches, 1);
    add(kRouterBalance, balance * experts / (static_cast<double>(top_k) * tokens * tokens));
    add(kRouterZ, z / tokens);
    for (size_t e = 0; e < static_cast<size_t>(load.cols); ++e) {
        add(kExpertLoads + e, static_cast<double>(loads[e]));
    }
}

void sum_reports(Context&, std::span<const double> reports, int64_t entries, int64_t first,
                 std::span<double> sums) {
    require_sum_reports(reports, entries, first, sums);
    for (size_t i = 0; i < sums.size(); ++i) {
        double sum = 0;
        for (size_t at = static_cast<size_t>(first) + i; at < reports.size();
             at += static_cast<size_t>(entries)) {
            sum += reports[at];
        }
        sums[i] = sum;
    }
}

void update_correction_bias(Context&, std::span<const double> loads, float rate,
                            const StepScalars* scalars, Tensor bias) {
    require_correction_bias(loads, bias);
    if (scalars->update == 0) return;
    double mean = 0;
    for (const double load : loads) mean += load;
    mean /= static_cast<double>(loads.size());
    auto* const values = bias.as<float>();
    for (size_t e = 0; e < loads.size(); ++e) {
        values[e] += loads[e] < mean ? rate : loads[e] > mean ? -rate : 0.0F;
    }
}

}  // namespace vocabpipe::kernels::host
