// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/lower.hpp"
#include "vocabpipe/modules.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe {

/// What check_gradients() runs a stage on.
struct GradientCheckOptions {
    int64_t sequences = 2;    ///< of the microbatch
    int64_t seq_length = 8;   ///< tokens of a sequence
    int64_t hidden_size;      ///< h of the stage
    int64_t vocab_size = 32;  ///< token ids are below it; most stages do not look at them
    uint64_t seed = 1;        ///< of input, output gradient and directions
    int threads = 1;          ///< of the operators
    /// How far weights and input are moved, relative to their length: rounding of fp32 is a
    /// millionth of what that changes, and the error of the difference of fourth order is less.
    double step = 1e-2;
    /// Largest relative error. Rounding leaves 1e-5 to 1e-4, a wrong factor or a missing term far
    /// more.
    double bound = 2e-3;
};

/// The largest relative error of any tensor.
struct GradientCheck {
    double error = 0;       ///< of the rate along a direction
    std::string name = "";  ///< of a parameter, or "input"
};

/// Compares what a stage of your own computes with finite differences of its output, in a test of
/// your own. `stage` has fp32 tensors in the memory of the host, and its weights are not changed
/// for good. Along a direction u that is half the gradient and half random, the sum over r y, with
/// a random r, must grow at the rate (gradient, u); for the input and for every parameter.
///
/// Also: B has the gradients of I followed by W, `accumulate` adds, R restores the bits of
/// Activations::recomputed, and no pass writes behind the bytes that it was given or changes the
/// stage's input. Throws Error (ExitCode::wrong_values) that names the pass or the
/// tensor, the rate that was found and the one that the stage gave.
GradientCheck check_gradients(StageModule& stage, const GradientCheckOptions& options);

}  // namespace vocabpipe
