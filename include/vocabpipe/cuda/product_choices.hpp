// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/world.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

/// Times cuBLASLt's algorithms for every matrix product that the ranks' CUDA devices have run so
/// far, on rank 0, and returns the choices as text on every rank: for
/// CudaDeviceOptions::product_choices of later runs on the same GPU and library. Collective,
/// between steps. The running devices keep their algorithms, and so their bits.
[[nodiscard]] std::string time_products(Communicator& communicator, Device& device);

/// The shapes of the matrix products that the ranks' CUDA devices have run so far, as in the text
/// of time_products(), sorted, on every rank. Collective, between steps.
[[nodiscard]] std::vector<std::string> product_shapes(Communicator& communicator, Device& device);

}  // namespace vocabpipe
