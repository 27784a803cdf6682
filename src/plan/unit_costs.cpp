// SPDX-License-Identifier: Apache-2.0
#include "src/plan/unit_costs.hpp"

namespace vocabpipe {

UnitCosts unit_costs(const PlanOptions& options) {
    const TransformerShape& model = options.model;
    const DeviceSpec& device = options.device;
    const auto tokens = static_cast<double>(options.micro_batch_size * options.seq_length);
    const auto h = static_cast<double>(model.hidden_size);
    constexpr double kElement = 2;   // bytes of bf16
    constexpr double kGradient = 4;  // bytes of fp32

    const double peak = device.peak_tflops.value * 1e3;  // FLOPs per ns
    const double bytes_per_ns = device.memory_gb_per_s.value * device.elementwise_efficiency.value;
    const double dense = tokens * model.dense_flops() / (peak * device.dense_efficiency.value);
    const double attention = tokens * model.attention_flops(options.seq_length) /
                             (peak * device.attention_efficiency.value);

    UnitCosts costs;
    costs.forward =
        dense + attention + tokens * model.elementwise_forward() * kElement / bytes_per_ns;
    // Fused attention recomputes the scores: five products backward where there are two forward.
    costs.input_gradient =
        dense + 2.5 * attention + tokens * model.elementwise_backward() * kElement / bytes_per_ns;
    costs.weight_gradient = dense;
    costs.product_per_row = 2 * tokens * h / (peak * device.vocabulary_efficiency.value);
    costs.softmax_per_row = tokens * device.softmax_bytes_per_logit.value / bytes_per_ns;
    costs.embedding = 2 * tokens * h * kElement / bytes_per_ns;  // rows read, rows written
    // dy is read, and the rows of all tokens are read, added to and written.
    costs.embedding_gradient = tokens * h * (kElement + 2 * kGradient) / bytes_per_ns;
    costs.vocabulary_pass = device.vocabulary_pass_overhead_us.value * 1e3;
    costs.per_parameter_byte = 1 / bytes_per_ns;
    costs.overlapped = 1 / device.overlap_efficiency.value;
    return costs;
}

}  // namespace vocabpipe
