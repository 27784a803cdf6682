// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/check_gradients.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>

namespace vocabpipe {

/// The random data that check_gradients() runs a model on.
struct ModelGradientCheckOptions {
    int64_t sequences = 2;  ///< of each of two microbatches
    int64_t labels = 0;     ///< labels are below it; 0: the model's vocab_size
    int64_t columns = 0;    ///< of the data (Sample::columns), from -1 to 1; default: none
    uint64_t seed = 1;      ///< of weights, data and directions
    double step = 2e-3;     ///< as in GradientCheckOptions
    /// Largest relative error. The rounding of a loss leaves more than that of a stage's output, a
    /// wrong factor or a missing term far more.
    double bound = 1e-2;
};

/// Compares the gradients of a model of your own (model_graph.hpp), or of any other, with finite
/// differences of its loss, in a test of your own: for every parameter along a direction that is
/// half its gradient and half random. In fp32 on the host, all layers on one rank; then every layer
/// as a stage of its own, on a rank of its own, whose gradients must be the same up to rounding.
/// Throws Error (ExitCode::wrong_values) that names the parameter, the rate that was found and the
/// one that its gradient says; UsageError as plan_step().
GradientCheck check_gradients(ModelConfig model, const ModelGradientCheckOptions& options = {});

}  // namespace vocabpipe
