// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include <cmath>

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

namespace {

/// The normalised input.
double z_of(ConstTensor x, ConstTensor statistics, int64_t n, int64_t i) {
    return (get(x, n, i) - get(statistics, n, 0)) * get(statistics, n, 1);
}

}  // namespace

void layer_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma, ConstTensor beta,
                        float epsilon, Tensor y, Tensor statistics) {
    const auto h = static_cast<double>(x.cols);
    for (int64_t n = 0; n < x.rows; ++n) {
        double mean = 0.0;
        for (int64_t i = 0; i < x.cols; ++i) mean += get(x, n, i) / h;
        double variance = 0.0;
        for (int64_t i = 0; i < x.cols; ++i) variance += std::pow(get(x, n, i) - mean, 2) / h;
        const double inverse_std = 1.0 / std::sqrt(variance + static_cast<double>(epsilon));
        set(statistics, n, 0, mean);
        set(statistics, n, 1, inverse_std);
        for (int64_t i = 0; i < x.cols; ++i) {
            const double z = (get(x, n, i) - mean) * inverse_std;
            set(y, n, i, get(gamma, 0, i) * z + get(beta, 0, i));
        }
    }
    ctx.poll();
}

void layer_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                               ConstTensor statistics, ConstTensor residual, Tensor dx) {
    const auto h = static_cast<double>(x.cols);
    for (int64_t n = 0; n < x.rows; ++n) {
        double mean_g = 0.0;
        double mean_gz = 0.0;
        for (int64_t i = 0; i < x.cols; ++i) {
            const double g = get(dy, n, i) * get(gamma, 0, i);
            mean_g += g / h;
            mean_gz += g * z_of(x, statistics, n, i) / h;
        }
        for (int64_t i = 0; i < x.cols; ++i) {
            const double g = get(dy, n, i) * get(gamma, 0, i);
            const double z = z_of(x, statistics, n, i);
            const double around = residual ? get(residual, n, i) : 0.0;
            set(dx, n, i, get(statistics, n, 1) * (g - mean_g - z * mean_gz) + around);
        }
    }
    ctx.poll();
}

void layer_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor statistics,
                                Tensor dgamma, Tensor dbeta, bool accumulate) {
    for (int64_t i = 0; i < x.cols; ++i) {
        double gamma_sum = start(dgamma, 0, i, accumulate);
        double beta_sum = start(dbeta, 0, i, accumulate);
        for (int64_t n = 0; n < x.rows; ++n) {
            gamma_sum += get(dy, n, i) * z_of(x, statistics, n, i);
            beta_sum += get(dy, n, i);
        }
        set(dgamma, 0, i, gamma_sum);
        set(dbeta, 0, i, beta_sum);
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference
