// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/device_links.hpp"
#include "src/plan/kernel_rates.hpp"
#include "vocabpipe/device_spec.hpp"
#include "vocabpipe/planned_trainer.hpp"

namespace vocabpipe {

/// Nanoseconds of matrix products on a device: m x n outputs over k terms (DeviceSpec).
class Products {
public:
    /// `speedup`: of products with narrower operands.
    explicit Products(const DeviceSpec& device, double speedup = 1)
        : flops_per_ns_(device.peak_tflops.value * 1e3 * device.dense_efficiency.value * speedup),
          startup_(device.product_startup_terms.value),
          overhead_ns_(device.product_overhead_us.value * 1e3) {}
    /// The part that grows with the number of outputs.
    [[nodiscard]] double outputs_ns(double m, double n, double k) const {
        return 2 * m * n * (k + startup_) / flops_per_ns_;
    }
    /// The fixed part of every product.
    [[nodiscard]] double fixed_ns() const { return overhead_ns_; }
    /// The whole product.
    [[nodiscard]] double ns(double m, double n, double k) const {
        return outputs_ns(m, n, k) + fixed_ns();
    }
    [[nodiscard]] double flops_per_ns() const { return flops_per_ns_; }

private:
    double flops_per_ns_, startup_, overhead_ns_;
};

/// How fast a trainer's kernels run on a device, and how fast its ranks exchange: made once of the
/// figures of both, and then asked for every layer.
struct DeviceRates {
    DeviceRates(const DeviceSpec& device, const PlannedTrainer& trainer);

    Products products;        ///< with operands of 16 bits
    Products layer_products;  ///< of layers, whose operands may have 8 bits
    DeviceLinks links;
    KernelRates kernels;
    double moved_bytes_per_ns;      ///< of operators that move bytes
    double attention_flops_per_ns;  ///< where scores are not in memory
    double layer_launch_ns;         ///< of a forward
    /// Per logit of a sharded output layer, and of a whole one, besides products.
    double softmax_bytes, whole_softmax_bytes;
    double vocabulary_pass_ns;  ///< fixed part of each of E, G, S and T
    double overlapped;          ///< factor of passes during collectives
    bool sequence_parallel;     ///< PlannedTrainer::sequence_parallel
    bool blocking_exchanges;    ///< PlannedTrainer::blocking_exchanges
};

}  // namespace vocabpipe
