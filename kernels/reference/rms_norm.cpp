// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include <cmath>

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

namespace {

double gain(ConstTensor gamma, const RmsNormOptions& options, int64_t i) {
    return get(gamma, 0, i) + static_cast<double>(options.weight_offset);
}

double squares(ConstTensor x, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < x.cols; ++i) sum += std::pow(get(x, n, i), 2);
    return sum;
}

/// The sum of g x, which is the sum of g z over inverse_rms.
double sum_gx(ConstTensor dy, ConstTensor x, ConstTensor gamma, const RmsNormOptions& options,
              int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < x.cols; ++i) {
        sum += get(dy, n, i) * gain(gamma, options, i) * get(x, n, i);
    }
    return sum;
}

/// Mean over all columns; `own` is the sum over x's columns.
double mean(const RmsNormOptions& options, ConstTensor x, int64_t n, double own) {
    if (!options.sums) return own / static_cast<double>(x.cols);
    return get(options.sums, 0, n) / static_cast<double>(options.columns);
}

}  // namespace

void rms_norm_sums(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                   const RmsNormOptions& options, ConstTensor statistics, Tensor sums) {
    for (int64_t n = 0; n < x.rows; ++n) {
        set(sums, 0, n,
            dy ? sum_gx(dy, x, gamma, options, n) * get(statistics, n, 0) : squares(x, n));
    }
    ctx.poll();
}

void rms_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma, const RmsNormOptions& options,
                      ConstTensor residual, Tensor y, Tensor statistics) {
    for (int64_t n = 0; n < x.rows; ++n) {
        const double inverse_rms = 1.0 / std::sqrt(mean(options, x, n, squares(x, n)) +
                                                   static_cast<double>(options.epsilon));
        set(statistics, n, 0, inverse_rms);
        for (int64_t i = 0; i < x.cols; ++i) {
            const double around = residual ? get(residual, n, i) : 0.0;
            set(y, n, i, around + gain(gamma, options, i) * get(x, n, i) * inverse_rms);
        }
    }
    ctx.poll();
}

void rms_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                             const RmsNormOptions& options, ConstTensor statistics,
                             ConstTensor residual, Tensor dx) {
    for (int64_t n = 0; n < x.rows; ++n) {
        const double inverse_rms = get(statistics, n, 0);
        const double mean_gz = mean(options, x, n, sum_gx(dy, x, gamma, options, n) * inverse_rms);
        for (int64_t i = 0; i < x.cols; ++i) {
            const double g = get(dy, n, i) * gain(gamma, options, i);
            const double z = get(x, n, i) * inverse_rms;
            const double around = residual ? get(residual, n, i) : 0.0;
            set(dx, n, i, inverse_rms * (g - z * mean_gz) + around);
        }
    }
    ctx.poll();
}

void rms_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor statistics,
                              Tensor dgamma, bool accumulate) {
    for (int64_t i = 0; i < x.cols; ++i) {
        double sum = start(dgamma, 0, i, accumulate);
        for (int64_t n = 0; n < x.rows; ++n) {
            sum += get(dy, n, i) * get(x, n, i) * get(statistics, n, 0);
        }
        set(dgamma, 0, i, sum);
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference
