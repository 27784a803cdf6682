// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/adamw.hpp"

#include <cmath>

#include "kernels/bf16.hpp"

namespace vocabpipe::kernels::reference {

void adamw_step(Context& /*ctx*/, std::span<float> master, std::span<const float> gradient,
                std::span<float> exp_avg, std::span<float> exp_avg_sq, Tensor weight,
                const AdamWOptions& options) {
    const double lr = options.lr;
    const double beta1 = options.beta1;
    const double beta2 = options.beta2;
    for (size_t i = 0; i < master.size(); ++i) {
        const double g = static_cast<double>(options.gradient_scale) * gradient[i];
        const double m = beta1 * exp_avg[i] + (1 - beta1) * g;
        const double v = beta2 * exp_avg_sq[i] + (1 - beta2) * g * g;
        const double decayed = master[i] - lr * options.weight_decay * master[i];
        const double denominator = std::sqrt(v / options.bias_correction2) + options.epsilon;
        exp_avg[i] = static_cast<float>(m);
        exp_avg_sq[i] = static_cast<float>(v);
        master[i] = static_cast<float>(decayed - lr * (m / options.bias_correction1) / denominator);
        if (weight) weight.as<Bf16>()[i] = to_bf16(master[i]);
    }
}

}  // namespace vocabpipe::kernels::reference
