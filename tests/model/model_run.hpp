// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/model/fp64_model.hpp"
#include "tests/support/pipeline_run.hpp"

namespace vocabpipe::testing {

/// The weights that the kernels read (in bf16 runs: the rounded ones) of the model initialised with
/// `seed`.
[[nodiscard]] Tensors initial_weights(const ModelConfig& config, uint64_t seed);

/// The same with noise on biases and on the scales of the norms, which start as 0 and 1 and would
/// hide a factor or an addend left out.
[[nodiscard]] Tensors random_weights(const ModelConfig& config, uint64_t seed);

/// One step of `schedule` on a world of threads, with these weights in place of a seed's.
[[nodiscard]] Gradients run_with_weights(const ModelConfig& config, const Schedule& schedule,
                                         const Batch& batch, const Tensors& weights);

/// |actual - expected| / |expected| in the Frobenius norm; 0 for 0 / 0.
[[nodiscard]] double relative_error(const std::vector<float>& actual,
                                    const std::vector<double>& expected);

/// The largest of the relative errors of all tensors, whose it is, and the mean of all.
struct WorstError {
    double value = 0;
    std::string name;
    double mean = 0;
};
[[nodiscard]] WorstError worst_error(const Gradients& actual, const Tensors& expected);

}  // namespace vocabpipe::testing
