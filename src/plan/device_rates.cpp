// SPDX-License-Identifier: Apache-2.0
#include "src/plan/device_rates.hpp"

namespace vocabpipe {

DeviceRates::DeviceRates(const DeviceSpec& device, const PlannedTrainer& trainer)
    : products(device),
      layer_products(device, trainer.fp8 ? device.fp8_speedup.value : 1),
      links(device),
      kernels(kernel_rates(trainer.kernels)),
      moved_bytes_per_ns(device.memory_gb_per_s.value * device.elementwise_efficiency.value),
      attention_flops_per_ns(device.peak_tflops.value * 1e3 *
                             (kernels.newest_attention ? device.attention_efficiency
                                                       : device.flash_attention_2_efficiency)
                                 .value),
      layer_launch_ns(device.layer_launch_us.value * 1e3),
      softmax_bytes(device.softmax_bytes_per_logit.value),
      whole_softmax_bytes(device.whole_softmax_bytes_per_logit.value),
      vocabulary_pass_ns(device.vocabulary_pass_overhead_us.value * 1e3),
      overlapped(1 / device.overlap_efficiency.value),
      sequence_parallel(trainer.sequence_parallel),
      blocking_exchanges(trainer.blocking_exchanges) {}

}  // namespace vocabpipe
