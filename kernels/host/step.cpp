// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/check.hpp"

namespace vocabpipe::kernels::host {

void weighted_sum(Context&, std::span<const float> values, std::span<const float> weights,
                  double* sum) {
    require(values.size() == weights.size(), "one weight per value");
    double total = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        total += static_cast<double>(values[i]) * static_cast<double>(weights[i]);
    }
    *sum = total;
}

void add_up(Context&, std::span<const double> values, double* sum) {
    for (const double value : values) *sum += value;
}

void finish_report(Context&, std::span<const double> reports, int64_t entries, int64_t squared,
                   StepScalars* scalars) {
    require(squared >= 0 && squared + 2 <= entries, "entries for loss and stop requests");
    const auto count = static_cast<size_t>(entries);
    const auto total = [&](size_t entry) {
        double sum = 0;
        for (size_t at = entry; at < reports.size(); at += count) sum += reports[at];
        return sum;
    };
    double squares = 0;
    const auto loss = static_cast<size_t>(squared);
    for (size_t entry = 0; entry < loss; ++entry) squares += total(entry);
    StepScalars& s = *scalars;
    s.grad_norm = std::sqrt(squares);
    s.loss = total(loss);
    s.stops = total(loss + 1);
    s.update = s.counted_tokens > 0 && std::isfinite(squares) && std::isfinite(s.loss) ? 1 : 0;
    s.gradient_scale = s.clip_grad > 0
                           ? static_cast<float>(std::min(1.0, s.clip_grad / (s.grad_norm + 1e-6)))
                           : 1.0F;
}

}  // namespace vocabpipe::kernels::host
