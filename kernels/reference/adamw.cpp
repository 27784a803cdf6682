// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include <cmath>

#include "kernels/bf16.hpp"

namespace vocabpipe::kernels::reference {

void adamw(Context& /*ctx*/, std::span<const AdamWTensor> tensors,
           const AdamWCoefficients& coefficients, const StepScalars* scalars) {
    if (scalars->update == 0) return;
    const double beta1 = coefficients.beta1;
    const double beta2 = coefficients.beta2;
    for (const AdamWTensor& t : tensors) {
        const double lr = scalars->lr * t.lr_multiplier;
        for (size_t i = 0; i < t.master.size(); ++i) {
            const double g = static_cast<double>(scalars->gradient_scale) * t.gradient[i];
            const double m = beta1 * t.exp_avg[i] + (1 - beta1) * g;
            const double v = beta2 * t.exp_avg_sq[i] + (1 - beta2) * g * g;
            const double decayed = t.master[i] - lr * t.weight_decay * t.master[i];
            const double denominator =
                std::sqrt(v / scalars->bias_correction2) + coefficients.epsilon;
            t.exp_avg[i] = static_cast<float>(m);
            t.exp_avg_sq[i] = static_cast<float>(v);
            t.master[i] =
                static_cast<float>(decayed - lr * (m / scalars->bias_correction1) / denominator);
            if (t.weight) t.weight.as<Bf16>()[i] = to_bf16(t.master[i]);
        }
    }
}

}  // namespace vocabpipe::kernels::reference
