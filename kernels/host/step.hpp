// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/step_scalars.hpp"
#include "vocabpipe/context.hpp"

/// What happens once per step (kernels/operators.hpp).
namespace vocabpipe::kernels::host {

/// *sum = sum over i of values[i] weights[i] in double, in order.
void weighted_sum(Context& ctx, std::span<const float> values, std::span<const float> weights,
                  double* sum);

/// *sum += values, in order.
void add_up(Context& ctx, std::span<const double> values, double* sum);

/// Adds the reports over the ranks in order and fills in the second half of `scalars`.
void finish_report(Context& ctx, std::span<const double> reports, int64_t slots,
                   StepScalars* scalars);

}  // namespace vocabpipe::kernels::host
